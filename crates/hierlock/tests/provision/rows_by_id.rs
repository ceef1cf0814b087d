//! Provisioning of rows by ID.

use crate::support::{Database, Setup};
use hierlock::Target;
use hierlock::sql::Strategy;
use hierlock_sandbox::{Engine, on_each_server};

on_each_server! { adding_a_node_adds_its_ancestors, rows_by_id_have_no_buckets }

async fn by_id(engine: Engine) -> Option<Database> {
    Database::empty(Setup { engine, strategy: Strategy::PerId }).await
}

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

async fn adding_a_node_adds_its_ancestors(engine: Engine) {
    let Some(database) = by_id(engine).await else { return };
    let provision = database.provisioner("").await;
    let message = provision.add(&[target("u1")]).await.unwrap_err().to_string();
    assert!(message.contains("hierlock provision"), "{message}");
    assert_eq!(provision.run(|_| ()).await.unwrap().rows, 0);
    provision.run(|_| ()).await.unwrap();
    assert_eq!(provision.add(&[target("u1/a1/r1"), target("u1/a1/r2")]).await.unwrap(), 4);

    let locks = database.connect().await;
    let guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
    let error = locks.acquire(target("u1/a2")).await.unwrap_err();
    assert!(error.is_not_provisioned(), "{error}");
    // Existing rows are not touched, even if they are locked.
    let nodes = [target("u1/a1/r1"), target("u1/a2"), target("ユ/'\\/%2F")];
    let add = tokio::time::timeout(crate::support::TEST_LIMIT, provision.add(&nodes));
    assert_eq!(add.await.expect("`add` did not return within the limit").unwrap(), 4);
    drop(locks.acquire(target("u1/a2")).await.unwrap());
    drop(locks.acquire(target("ユ/'\\/%2F")).await.unwrap());
    guard.release().await.unwrap();
    let error = provision.add(&[target("a/b/c/d")]).await.unwrap_err();
    assert!(error.is_usage(), "{error}");

    let many: Vec<Target> = (0..2500).map(|n| target(&format!("many/{n}"))).collect();
    assert_eq!(provision.add(&many).await.unwrap(), 2501);
    assert_eq!(provision.add(&many).await.unwrap(), 0);
}

async fn rows_by_id_have_no_buckets(engine: Engine) {
    let Some(database) = by_id(engine).await else { return };
    let provision = database.provisioner("").await;
    database.outside().await.run(&provision.print_sql()).await;
    database.connect().await;
    let new = hierlock::Buckets::new(10).unwrap();
    for error in [
        provision.check(|_| ()).await.unwrap_err(),
        provision.repair(|_| ()).await.unwrap_err(),
        provision.rebucket(new, |_| ()).await.unwrap_err(),
    ] {
        assert!(error.is_usage() && error.to_string().contains("per-id"), "{error}");
    }
    let striped = database.url.replace("per-id", "striped") + "&table=rows&buckets=10";
    let striped =
        hierlock::sql::Provision::connect(&striped, hierlock::Hierarchy::default()).await.unwrap();
    let error = striped.add(&[target("u1")]).await.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("striped"), "{error}");
}
