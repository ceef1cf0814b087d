//! `hierlock lab list`.

use super::{args, select};
use crate::generate::print;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    title: &'a str,
    seeds: &'a [String],
    engines: Vec<&'static str>,
    cases: usize,
}

pub(super) fn list(args: &args::List) -> ExitCode {
    let listed = select::of_topics(&args.topic).and_then(|scenarios| {
        let mut lines = Vec::new();
        let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
        for scenario in &scenarios {
            let cases = select::cases(std::slice::from_ref(scenario), &[])?;
            lines.push(match args.json {
                false => format!("{:width$}  {}", scenario.name, scenario.title),
                true => {
                    let engines = select::engines(&cases).into_iter().map(|engine| engine.name());
                    let listed = Listed {
                        name: &scenario.name,
                        title: &scenario.title,
                        seeds: &scenario.seeds,
                        engines: engines.collect(),
                        cases: cases.len(),
                    };
                    // Texts and numbers always become JSON.
                    serde_json::to_string(&listed).unwrap_or_default()
                }
            });
        }
        Ok(lines)
    });
    match listed {
        Ok(lines) if args.json => print(format!("[{}]\n", lines.join(",\n ")).as_bytes()),
        Ok(lines) => print((lines.join("\n") + "\n").as_bytes()),
        Err(stop) => stop.end(),
    }
}
