//! Edit locks that outlive a transaction: leases on nodes of the tree.
