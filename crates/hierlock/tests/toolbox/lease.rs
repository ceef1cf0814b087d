//! See the module of the same name.
