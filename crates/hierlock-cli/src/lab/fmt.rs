//! `hierlock lab fmt`: scenario files in the usual layout.

use super::args;
use crate::exit;
use crate::generate::print;
use crate::show::{message, say};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

/// One file of several could not be laid out, or would change.
const DIFFERS: u8 = 1;

pub(super) fn fmt(args: &args::Fmt) -> ExitCode {
    let mut worst = ExitCode::SUCCESS;
    for file in &args.files {
        match lay_out(file, args.check) {
            Ok(Laid::AsItWas) => {}
            Ok(Laid::Out) if args.check => {
                println!("{}", message(&file.display().to_string()));
                worst = ExitCode::from(DIFFERS);
            }
            Ok(Laid::Out) => {}
            Err(why) => {
                say(why);
                return exit::USAGE.into();
            }
        }
    }
    worst
}

enum Laid {
    AsItWas,
    Out,
}

fn lay_out(file: &Path, check: bool) -> Result<Laid, String> {
    let is_stdin = file == Path::new("-");
    let cannot =
        |what: &str, error: io::Error| format!("{} cannot be {what}: {error}", file.display());
    let text = match is_stdin {
        true => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => fs::read_to_string(file),
    };
    let text = text.map_err(|error| cannot("read", error))?;
    let name = file.display().to_string();
    let laid =
        hierlock_lab::Scenario::format(&name, &text).map_err(|mistakes| super::told(&mistakes))?;
    let same = laid == text;
    if is_stdin && !check {
        print(laid.as_bytes());
    } else if !same && !check {
        fs::write(file, laid).map_err(|error| cannot("written", error))?;
    }
    Ok(if same { Laid::AsItWas } else { Laid::Out })
}
