//! Two editors and an administrator share documents in a SQLite file. Ada edits a chapter, so Bob cannot edit the book. She
//! goes home, the administrator ends her lease, and her next save is refused.
//!
//! `cargo run --example lease`

use hierlock::Hierarchy;
use hierlock::database::Database;
use hierlock::lease::{LeaseFilter, LeaseRequest, Leases};
use std::time::Duration;

type BoxResult<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> BoxResult<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("books.db");
    let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
    let mut tx = database.begin().await?;
    tx.run("CREATE TABLE chapters (path TEXT PRIMARY KEY, words TEXT, token BIGINT)").await?;
    tx.run("INSERT INTO chapters VALUES ('shelf/book/1', 'Once', 0)").await?;
    tx.commit().await?;

    let tree = Hierarchy::new(["shelf", "book", "chapter"])?;
    let leases = Leases::new(database.clone()).with_hierarchy(tree.clone());
    leases.provision().await?;
    let (book, chapter) = (tree.parse("shelf/book")?, tree.parse("shelf/book/1")?);

    // Ada opens the chapter. Her request ends here; the token goes to her browser.
    let request =
        LeaseRequest::new(chapter, "ada").session("tab-7").reason("rewrites the beginning");
    let ada = leases.acquire(request.ttl(Duration::from_secs(600))).await?.token();

    // Bob wants the whole book.
    let whole_book = || LeaseRequest::new(book.clone(), "bob").reason("renumbers the chapters");
    let error = leases.acquire(whole_book()).await.err().ok_or("bob got the lease")?;
    println!("bob:   {error}");
    assert_eq!(error.lease_holder().map(|holder| holder.token), Some(ada));

    // Ada saves, in another request that contains the token.
    save(&database, &leases, ada, "Once upon a time").await?;
    println!("ada:   saved");

    // She goes home and leaves the tab open. The administrator lists the leases, and ends hers.
    for lease in leases.list(LeaseFilter::default().within(book.clone())).await? {
        println!("admin: {lease}");
        leases.force_release(lease.token, "admin", "ada went home").await?;
    }
    let bob = leases.acquire(whole_book()).await?.keep();
    assert!(bob.lease().token() > ada);
    println!("bob:   {}", bob.lease().info());

    // The next morning she saves once more.
    let error =
        save(&database, &leases, ada, "Twice upon a time").await.err().ok_or("ada saved")?;
    println!("ada:   {error}");
    for forced in leases.audit(10).await? {
        println!("audit: {} ended lease {}: {}", forced.actor, forced.lease.token, forced.why);
    }
    bob.release().await?;

    let mut tx = database.begin().await?;
    let words = tx.fetch("SELECT words FROM chapters", []).await?[0].text(0)?;
    assert_eq!(words, "Once upon a time");
    Ok(())
}

/// Saves a chapter. Checks the lease in the same transaction, and fails if the lease is lost.
async fn save(database: &Database, leases: &Leases, token: i64, words: &str) -> BoxResult<()> {
    let mut tx = database.begin().await?;
    leases.check_token_in(&mut tx, token).await?;
    tx.execute("UPDATE chapters SET words = ?, token = ?", [words.into(), token.into()]).await?;
    tx.commit().await?;
    Ok(())
}
