//! Writes a list of the repository's scenarios with their texts, which is compiled into the crate.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    for topic in fs::read_dir(&root)? {
        let topic = topic?.path();
        if topic.is_dir() {
            println!("cargo::rerun-if-changed={}", topic.display());
            for file in fs::read_dir(topic)? {
                files.push(file?.path());
            }
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "lab"));
    files.sort();

    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root).map_err(io::Error::other)?.with_extension("");
        // Writing to a String cannot fail.
        let _ = writeln!(list, "    ({:?}, include_str!({:?})),", name, file.canonicalize()?);
    }
    list.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("builtin.rs"), list)
}
