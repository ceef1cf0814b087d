//! Errors in a file: each has its position and says what to write instead.

use hierlock_lab::Scenario;

/// Returns all diagnostics of a file, as they are shown.
pub(crate) fn diagnostics(text: &str) -> String {
    match Scenario::parse("topic/name", "x.lab", text) {
        Ok(_) => "nothing".to_owned(),
        Err(found) => {
            assert!(!found.is_empty());
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            shown.join("\n")
        }
    }
}

#[test]
fn errors_of_headers_are_reported() {
    insta::assert_snapshot!(diagnostics("\
egines: mysql
engines: mysql oracle postgress mysql
engines: file
strategies: stripped
buckets: 0
limit: 5
limit: 10s
anomaly:
sesions: isolation serializable
sessions: isolation snapshot
sessions: autocommit off, lock wait timeout 5
session a: autocommit off
setup [mysq]:
setup: select 1;
for each: 1 | 2
foreach x: 1 | 2
seed
A: begin
A> select 1
"), @r#"
    x.lab:1:1: `egines` is not a header; did you mean `engines`? There are seed, engines, strategies, buckets, anomaly, limit, sessions, session A, for each NAME, setup, teardown and advice
      egines: mysql
      ^
    x.lab:2:16: `oracle` is not an engine; there are mysql, mariadb, postgres, memory and file
      engines: mysql oracle postgress mysql
                     ^
    x.lab:2:23: `postgress` is not an engine; did you mean `postgres`? There are mysql, mariadb, postgres, memory and file
      engines: mysql oracle postgress mysql
                            ^
    x.lab:2:33: `mysql` is there twice
      engines: mysql oracle postgress mysql
                                      ^
    x.lab:3:1: `engines:` is already on line 2; put all of it there
      engines: file
      ^
    x.lab:4:13: `stripped` is not a strategy; did you mean `striped`? There are striped, per-id, on-demand and advisory
      strategies: stripped
                  ^
    x.lab:5:10: `0` is not a number of buckets; it is 1 to 2147483647, such as 257
      buckets: 0
               ^
    x.lab:6:8: `5` is not a time; write it as 300ms, 5s, 2m or 1h
      limit: 5
             ^
    x.lab:7:1: `limit:` is already on line 6; put all of it there
      limit: 10s
      ^
    x.lab:8:9: the name is missing; it is `anomaly: G1a dirty read`
      anomaly:
              ^
    x.lab:9:1: `sesions` is not a header; did you mean `sessions`? There are seed, engines, strategies, buckets, anomaly, limit, sessions, session A, for each NAME, setup, teardown and advice
      sesions: isolation serializable
      ^
    x.lab:10:21: `snapshot` is not an isolation level; there are read uncommitted, read committed, repeatable read and serializable
      sessions: isolation snapshot
                          ^
    x.lab:11:45: `5` is not a time; write it as 300ms, 5s, 2m or 1h
      sessions: autocommit off, lock wait timeout 5
                                                  ^
    x.lab:12:9: `a` is not a session; its name begins with a capital and has letters and digits
      session a: autocommit off
              ^
    x.lab:13:1: `setup:` is empty; write its SQL below, indented
      setup [mysq]:
      ^
    x.lab:14:1: `setup:` is empty; write its SQL below, indented
      setup: select 1;
      ^
    x.lab:14:8: the text of `setup:` goes on the lines below it, indented
      setup: select 1;
             ^
    x.lab:15:9: the name of an axis begins with a letter and has letters, digits, `_` and `-`, as in `for each isolation: …` or `for each held, wanted: …`
      for each: 1 | 2
              ^
    x.lab:16:1: an axis is written `for each NAME: VALUE | VALUE`
      foreach x: 1 | 2
      ^
    x.lab:17:1: this is neither a step (`A> statement`) nor a header (`engines: mysql`)
      seed
      ^
    x.lab:18:1: a step is written `A> statement`
      A: begin
      ^
    "#);
}

#[test]
fn errors_of_settings_and_durations_are_reported() {
    insta::assert_snapshot!(diagnostics("\
limit: 25h
sessions:
sessions: autocommit off,
sessions: isolation read comitted
sessions: autocommit off, isolation
sessions: set 課題, autocommit no
sessions: lock wait timeout 0s
sessions: isolaton serializable
sessions: set
A> select 1
"), @r#"
    x.lab:1:8: `25h` is too long; write at most 24h
      limit: 25h
             ^
    x.lab:2:10: the settings are missing; it is `sessions: isolation read committed, autocommit off`
      sessions:
               ^
    x.lab:3:26: a setting is missing; it is `isolation LEVEL`, `autocommit off`, `lock wait timeout 1s` or `set NAME = VALUE`
      sessions: autocommit off,
                               ^
    x.lab:4:21: `read comitted` is not an isolation level; did you mean `read committed`? There are read uncommitted, read committed, repeatable read and serializable
      sessions: isolation read comitted
                          ^
    x.lab:5:36: `` is not an isolation level; there are read uncommitted, read committed, repeatable read and serializable
      sessions: autocommit off, isolation
                                         ^
    x.lab:6:30: it is `autocommit on` or `autocommit off`
      sessions: set 課題, autocommit no
                                     ^
    x.lab:7:29: `0s` is too short; write at least 1ms
      sessions: lock wait timeout 0s
                                  ^
    x.lab:8:11: `isolaton` is not a setting; did you mean `isolation`? There are isolation, autocommit, lock wait timeout and set
      sessions: isolaton serializable
                ^
    x.lab:9:14: it is `set NAME = VALUE`, in the words of the engine
      sessions: set
                   ^
    "#);
}

#[test]
fn errors_of_axes_are_reported() {
    insta::assert_snapshot!(diagnostics("\
for each isolation: read committed, serializable
for each held, wanted: u1, u1/a1 | u1 | u1, u1/a1
for each held: 1 | | 2
for each engine: mysql
for each a b: 1 | 2
for each level [mysql]: read comitted | serializable
A> select 1
"), @r#"
    x.lab:1:21: the values of an axis are separated by `|`, not by commas
      for each isolation: read committed, serializable
                          ^
    x.lab:2:36: here are 1 value for 2 names; it is one for each, separated by commas
      for each held, wanted: u1, u1/a1 | u1 | u1, u1/a1
                                         ^
    x.lab:2:41: `u1, u1/a1` is there twice
      for each held, wanted: u1, u1/a1 | u1 | u1, u1/a1
                                              ^
    x.lab:3:10: there is already an axis `held`
      for each held: 1 | | 2
               ^
    x.lab:3:20: a value is missing here; write '' for an empty one
      for each held: 1 | | 2
                         ^
    x.lab:4:10: every case has its engine anyway; choose another name, or say which there are with `engines:` and `strategies:`
      for each engine: mysql
               ^
    x.lab:5:10: the name of an axis begins with a letter and has letters, digits, `_` and `-`, as in `for each isolation: …` or `for each held, wanted: …`
      for each a b: 1 | 2
               ^
    x.lab:6:17: an axis applies to all cases; leave the brackets out, and guard the steps instead
      for each level [mysql]: read comitted | serializable
                      ^
    "#);
    insta::assert_snapshot!(diagnostics("\
for each isolation: read comitted | serializable
for each held, wanted: u1, u1/a1 | u1/a1, u1
for each other: 1 | 2
A> lock {held}
B> lock {wantd}
"), @r#"
    x.lab:1:21: `read comitted` is not an isolation level; did you mean `read committed`? There are read uncommitted, read committed, repeatable read and serializable
      for each isolation: read comitted | serializable
                          ^
    x.lab:5:9: `{wantd}` is not the name of an axis
      B> lock {wantd}
              ^
    "#);
    insta::assert_snapshot!(diagnostics("\
for each held, wanted: u1, u1/a1 | u1/a1, u1
for each other: 1 | 2
A> lock {held}
B> lock {wantd}
"), @r#"
    x.lab:4:9: `{wantd}` is not the name of an axis
      B> lock {wantd}
              ^
    "#);
    insta::assert_snapshot!(diagnostics("\
for each a: 1|2|3|4|5|6|7|8|9|10|11|12
for each b: 1|2|3|4|5|6|7|8|9|10|11|12
for each c: 1|2|3|4|5|6|7|8|9|10|11|12
A> select {a}, {b}, {c}
"), @r#"
    x.lab:3:1: that makes 5184 cases; write axes that make at most 5000
      for each c: 1|2|3|4|5|6|7|8|9|10|11|12
      ^
    "#);
}

#[test]
fn errors_of_guards_are_reported() {
    insta::assert_snapshot!(diagnostics("\
for each isolation: read committed | serializable
A> [mysql postgress] select 1
A> [] select 1
A> [mysql select 1
A> [repeatable read] select 1
A> select 1
 = [mysql, oracle] done
"), @r#"
    x.lab:2:11: `postgress` is not an engine, a strategy or a value of an axis; did you mean `postgres`? There are mysql, mariadb, postgres, memory, file, striped, per-id, on-demand, advisory, read committed and serializable
      A> [mysql postgress] select 1
                ^
    x.lab:3:5: the brackets are empty; name engines, strategies or values of an axis, or leave the brackets out
      A> [] select 1
          ^
    x.lab:4:4: this bracket is not closed; it is `A> [mysql mariadb] statement`
      A> [mysql select 1
         ^
    x.lab:5:5: `repeatable read` is not an engine, a strategy or a value of an axis; there are mysql, mariadb, postgres, memory, file, striped, per-id, on-demand, advisory, read committed and serializable
      A> [repeatable read] select 1
          ^
    x.lab:7:12: `oracle` is not an engine, a strategy or a value of an axis; there are mysql, mariadb, postgres, memory, file, striped, per-id, on-demand, advisory, read committed and serializable
       = [mysql, oracle] done
                 ^
    "#);
    insta::assert_snapshot!(diagnostics("\
engines: mysql postgres
for each isolation: read committed | serializable
for each n: 1 | 2
for each m: 2 | 3
setup [mariadb]:
  select 1;
A> [mysql, file] select {n} {m}
A> select 1
 = [2] done
A> select 1
 = [n = 2] done
 = done
 = [mysql] done
"), @r#"
    x.lab:9:5: `2` is a value of n and of m; say which: `m = 2`
       = [2] done
          ^
    "#);
    insta::assert_snapshot!(diagnostics("\
engines: mysql postgres memory
setup [mariadb]:
  select 1;
A> [mysql, file] select 1
A> [striped] select 1
A> select 1
 = done
 = [mysql] blocked
"), @r#"
    x.lab:2:8: `mariadb` is not among the engines here, which are mysql, postgres and memory
      setup [mariadb]:
             ^
    x.lab:4:12: `file` is not among the engines here, which are mysql, postgres and memory
      A> [mysql, file] select 1
                 ^
    x.lab:5:5: there are no strategies here, so `striped` never fits
      A> [striped] select 1
          ^
    x.lab:6:4: memory has no SQL; take it out of `engines:`, or guard this with the engines that have
      A> select 1
         ^
    x.lab:8:2: this never counts, because a line above it fits first; put what has no brackets last
       = [mysql] blocked
       ^
    "#);
}

#[test]
fn errors_of_steps_are_reported() {
    insta::assert_snapshot!(diagnostics("\
a> begin
victm> begin
A begin
A>
B> = done
B< select 1
= done
   select 1
C> select 'it\\'s'
C> select 1
 = done
   from t
"), @r#"
    x.lab:1:1: the name of a session begins with a capital: `A>`
      a> begin
      ^
    x.lab:2:1: `victm` is not a session; did you mean `victim`?
      victm> begin
      ^
    x.lab:3:1: a step is written `A> statement`, a second look `A< = done`
      A begin
      ^
    x.lab:4:3: the statement is missing; it is `A> select 1`
      A>
        ^
    x.lab:5:4: a second look at a step is written `B< = …`
      B> = done
         ^
    x.lab:6:4: `B<` only looks; it is `B< = done`, and a statement is `B> …`
      B< select 1
         ^
    x.lab:7:1: an expectation is indented by a blank, below its step
      = done
      ^
    x.lab:9:17: this ' is not closed; a quote inside of quotes is written twice
      C> select 'it\'s'
                      ^
    x.lab:12:4: a statement continues before its expectation; an expectation begins with one of `=`, `|`, `!`, `:`
         from t
         ^
    "#);
    insta::assert_snapshot!(diagnostics("\
B< = done
A> select 1
B> select 1
victim> rollback
A> select 1
 = deadlock, A or B or C
survivor> rollback
A> lock u1//a1
A> lock exlusive u1
A> lock u1/a1/r1/x
"), @r#"
    x.lab:8:9: `u1//a1` is not a path: the ID at level 1 has 0 bytes; an ID has 1 to 255 bytes of UTF-8
      A> lock u1//a1
              ^
    x.lab:9:9: `exlusive` is not a mode; did you mean `exclusive`? (A user of that name is written in quotes.)
      A> lock exlusive u1
              ^
    x.lab:10:9: `u1/a1/r1/x` has 4 IDs, but the tree has only 3 levels (user/account/resource)
      A> lock u1/a1/r1/x
              ^
    "#);
}

#[test]
fn errors_of_lock_steps_are_reported() {
    insta::assert_snapshot!(diagnostics("\
A> lock
A> lock within u1
A> lock within 99999999999999999999s u1
A> lock u1//r1
A> lock u1, u2
A> lock 'u1
A> lock {held}
A> try within 5s u1
A> release u1
A> lock u1
 = blocked by (
A> lock u1
 = rows ('it''s', 'x
"), @r#"
    x.lab:1:8: a path is missing; it is `u1`, `u1/a1` or `u1/a1/r1`
      A> lock
             ^
    x.lab:2:16: `u1` is not a time; write it as 300ms, 5s, 2m or 1h
      A> lock within u1
                     ^
    x.lab:3:16: `99999999999999999999s` is not a time; write it as 300ms, 5s, 2m or 1h
      A> lock within 99999999999999999999s u1
                     ^
    x.lab:4:9: `u1//r1` is not a path: the ID at level 1 has 0 bytes; an ID has 1 to 255 bytes of UTF-8
      A> lock u1//r1
              ^
    x.lab:5:11: unexpected `,`; paths are separated by blanks
      A> lock u1, u2
                ^
    x.lab:6:9: this quote is not closed; a quote inside of quotes is written twice
      A> lock 'u1
              ^
    x.lab:7:9: `{held}` is not the name of an axis
      A> lock {held}
              ^
    x.lab:8:8: `try` never waits; with a time it is `lock within …`
      A> try within 5s u1
             ^
    x.lab:9:12: `release` takes no path; it applies to all that the session holds
      A> release u1
                 ^
    x.lab:11:15: `(` is not a session; it is a name that begins with a capital, `victim` or `survivor`
       = blocked by (
                    ^
    x.lab:13:19: this quote is not closed; a quote inside of quotes is written twice
       = rows ('it''s', 'x
                        ^
    "#);
}
