//! What can be wrong with a file, and that it is said where and what would be right.

use hierlock_lab::scenario::Scenario;

/// Everything that is said of a file, as it is shown.
fn mistakes(text: &str) -> String {
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
fn headers() {
    insta::assert_snapshot!(mistakes("\
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
    x.lab:6:8: `5` is not a time such as 300ms, 5s or 2m
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
    x.lab:11:45: `5` is not a time such as 300ms, 5s or 2m
      sessions: autocommit off, lock wait timeout 5
                                                  ^
    x.lab:12:9: `a` is not a session; its name begins with a capital and has letters and digits
      session a: autocommit off
              ^
    x.lab:13:1: nothing stands below `setup:`; write its SQL there, indented
      setup [mysq]:
      ^
    x.lab:14:1: nothing stands below `setup:`; write its SQL there, indented
      setup: select 1;
      ^
    x.lab:14:8: what belongs to `setup:` stands on the lines below it, indented
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
fn axes() {
    insta::assert_snapshot!(mistakes("\
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
    x.lab:6:17: an axis goes for all cases; leave the brackets out, and guard the steps instead
      for each level [mysql]: read comitted | serializable
                      ^
    "#);
    insta::assert_snapshot!(mistakes("\
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
    insta::assert_snapshot!(mistakes("\
for each held, wanted: u1, u1/a1 | u1/a1, u1
for each other: 1 | 2
A> lock {held}
B> lock {wantd}
"), @r#"
    x.lab:4:9: `{wantd}` is not the name of an axis
      B> lock {wantd}
              ^
    "#);
    insta::assert_snapshot!(mistakes("\
for each a: 1|2|3|4|5|6|7|8|9|10|11|12
for each b: 1|2|3|4|5|6|7|8|9|10|11|12
for each c: 1|2|3|4|5|6|7|8|9|10|11|12
A> select {a}, {b}, {c}
"), @r#"
    x.lab:3:1: that makes 5184 cases; 5000 is the most, so let less vary
      for each c: 1|2|3|4|5|6|7|8|9|10|11|12
      ^
    "#);
}

#[test]
fn guards() {
    insta::assert_snapshot!(mistakes("\
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
    x.lab:3:5: nothing stands in the brackets; name engines, strategies or values of an axis, or leave the brackets out
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
    insta::assert_snapshot!(mistakes("\
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
    insta::assert_snapshot!(mistakes("\
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
fn steps() {
    insta::assert_snapshot!(mistakes("\
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
    x.lab:5:4: a look at what became of a step is written `B< = …`
      B> = done
         ^
    x.lab:6:4: `B<` only looks; it is `B< = done`, and a statement is `B> …`
      B< select 1
         ^
    x.lab:7:1: what must be seen is indented by a blank, below its step
      = done
      ^
    x.lab:9:17: this ' is not closed; a quote inside of quotes is written twice
      C> select 'it\'s'
                      ^
    x.lab:12:4: a statement goes on before what is expected of it; what must be seen begins with one of `=`, `|`, `!`, `:`
         from t
         ^
    "#);
    insta::assert_snapshot!(mistakes("\
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
fn expectations() {
    insta::assert_snapshot!(mistakes("\
A> select 1
 = 
A> select 1
 = doen
A> select 1
 = rows
A> select 1
 = rows (1, 2
A> select 1
 = rows (1, 2) 3
A> select 1
 = rows 1, 2
A> select 1
 = changed many
A> select 1
 = blocked by a
A> select 1
 = blocked by C
A> select 1
 = blocked on gapp
A> select 1
 = blocked by A
A> select 1
 = deadlock A or B
A> select 1
 = timeout
A> select 1
 = error duplicate
A> select 1
 = error 'dup
A> select 1
 = done done
A> select 1
 = done, in any order
A> select 1
 = rows 1
 | 1
A> select 1
 | 1 | 2
 | 1
 | 1 |
 | 'a
 | 'a' b
B> select 1
 = done or
 ! rows 2
"), @r#"
    x.lab:2:3: what must be seen is missing; it is `= done`, `= blocked by A`, `= rows 30` …
       =
        ^
    x.lab:4:4: `doen` is not something to be seen; did you mean `done`? There are done, rows, no rows, changed, blocked, deadlock, timed out, refused, conflict and error
       = doen
         ^
    x.lab:6:8: the rows are missing; it is `rows 30`, `rows (1, 30) (2, 10)` or `no rows`
       = rows
             ^
    x.lab:8:14: the row is not closed; it is `(1, 30)`
       = rows (1, 2
                   ^
    x.lab:10:16: this row has 1 cell, the first has 2; all rows have the same
       = rows (1, 2) 3
                     ^
    x.lab:12:12: `2` cannot stand here; after a comma comes `rows …`, `changed 1` or `in any order` (and a row of several cells is written `(1, 30)`)
       = rows 1, 2
                 ^
    x.lab:14:12: `many` is not a number; it is `changed 1`
       = changed many
                 ^
    x.lab:16:15: `a` is not a session; it is a name that begins with a capital, `victim` or `survivor`
       = blocked by a
                    ^
    x.lab:20:15: `gapp` is not a kind of lock; did you mean `gap`? There are row, gap, table, metadata, advisory, transaction, node and other
       = blocked on gapp
                    ^
    x.lab:24:13: `A` cannot stand here; it is `deadlock` (of this session), or `deadlock, A or B` where the engine chooses
       = deadlock A or B
                  ^
    x.lab:26:4: a wait that ends by itself is `timed out`
       = timeout
         ^
    x.lab:28:10: `duplicate` is not a code such as 1062 or 23505; part of a message goes in quotes: `error 'duplicate'`
       = error duplicate
               ^
    x.lab:30:10: this quote is not closed; a quote inside of quotes is written twice
       = error 'dup
               ^
    x.lab:32:9: `done` cannot stand here; after `done` comes nothing, `, in any order` or `or …`; rows go on lines below, each behind a `|`
       = done done
              ^
    x.lab:34:4: `in any order` is said of rows; write them below, each behind a `|`
       = done, in any order
         ^
    x.lab:36:4: there are rows below this, so one of its alternatives must be `done` (and have no other rows)
       = rows 1
         ^
    x.lab:40:4: this row has 1 cell, the first has 2; all rows have the same
       | 1
         ^
    x.lab:41:7: a cell is empty; write '' for an empty text, null, or * for anything
       | 1 |
            ^
    x.lab:42:4: this quote is not closed; a quote inside of quotes is written twice
       | 'a
         ^
    x.lab:43:8: a cell in quotes ends with its quote; a quote inside of quotes is written twice
       | 'a' b
             ^
    x.lab:45:11: what must be seen is missing; there are done, rows, no rows, changed, blocked, deadlock, timed out, refused, conflict and error
       = done or
                ^
    "#);
}

#[test]
fn tables() {
    insta::assert_snapshot!(mistakes("\
for each isolation: read committed | serializable
A> select 1
 = by isolaton | mysql
 : read committed | done
A> select 1
 = by isolation | mysql | mysq
 : read committed | done | done
A> select 1
 = by isolation | mysql | *
 : read committed | done
 : read comitted | done | done
 : serializable | done | done | done
 : serializable | | done
A> select 1
 = by isolation | mysql | postgres
A> select 1
 = by isolation | mysql | *
 : read committed | done | done
 : * | done | done
 : read committed | done | done
 = done
A> select 1
 : a | b
A> select 1
 = done
 = by isolation | mysql
 : * | done
 | 1
"), @r#"
    x.lab:3:7: `isolaton` is not an axis; did you mean `isolation`? There are isolation, engine and strategy
       = by isolaton | mysql
            ^
    x.lab:6:27: `mysq` is not an engine; did you mean `mysql`? There are mysql, mariadb, postgres, memory and file
       = by isolation | mysql | mysq
                                ^
    x.lab:10:21: this row has 1 cell, the table has 2 columns; write one for each
       : read committed | done
                          ^
    x.lab:11:4: `read comitted` is not a value of `isolation`; did you mean `read committed`? There are read committed and serializable
       : read comitted | done | done
         ^
    x.lab:12:33: this row has 3 cells, the table has 2 columns; write one for each
       : serializable | done | done | done
                                      ^
    x.lab:13:19: the cell is empty; write what must be seen, `done` at least
       : serializable | | done
                        ^
    x.lab:15:4: the table has no rows; each is ` : VALUE | what must be seen | …`
       = by isolation | mysql | postgres
         ^
    x.lab:20:4: there is already a row for `read committed`
       : read committed | done | done
         ^
    x.lab:23:2: a `:` line is a row of a table; its head goes above it: ` = by isolation | mysql | postgres`
       : a | b
       ^
    x.lab:26:2: a step has a table or lines, and line 25 is one; put it into the cells
       = by isolation | mysql
       ^
    x.lab:28:2: rows cannot stand below a table; write them in its cells, as in `rows 30 10`
       | 1
       ^
    "#);
    insta::assert_snapshot!(mistakes("\
engines: mysql postgres
for each isolation: read committed | serializable
A> select 1
 = by isolation   | mysql | mariadb
 : read committed | done  | done
"), @r#"
    x.lab:4:4: the table has no row for serializable; `*` would be one for all others
       = by isolation   | mysql | mariadb
         ^
    x.lab:4:4: the table has no column for postgres; `*` would be one for all others
       = by isolation   | mysql | mariadb
         ^
    x.lab:4:29: no case has `mariadb` here; there are mysql and postgres
       = by isolation   | mysql | mariadb
                                  ^
    "#);
}

#[test]
fn blocks_and_their_order() {
    insta::assert_snapshot!(mistakes("\x20 stray
setup:
  create table t (id int)
  ;
  ;
  insert into t values ('a;b'
A> select 1
engines: mysql
teardown:
  drop table t;
A> select 2
advice:
  Do it well.
A> select 1
"), @r#"
    x.lab:1:3: an indented line belongs to a step or to a block (setup:, teardown:, advice:); there is none above, so write it at the margin
        stray
        ^
    x.lab:5:3: there is no statement before this `;`
        ;
        ^
    x.lab:6:30: the statement that begins on line 6 has no `;` at its end
        insert into t values ('a;b'
                                   ^
    x.lab:8:1: this belongs to the header; put it before the first step
      engines: mysql
      ^
    x.lab:11:1: this step stands behind `teardown:`, which comes before the first or after the last
      A> select 2
      ^
    x.lab:14:1: `advice:` is the last thing in a file; put this before it
      A> select 1
      ^
    "#);
    insta::assert_snapshot!(mistakes("setup:\n  insert into t values ('a);\n"), @r#"
    x.lab:2:25: this ' is not closed; a quote inside of quotes is written twice
        insert into t values ('a);
                              ^
    "#);
    insta::assert_snapshot!(mistakes("setup:\n  create function f() as $$ begin; end;\nadvice:\n"), @r#"
    x.lab:2:26: $$ is not closed
        create function f() as $$ begin; end;
                               ^
    x.lab:3:1: nothing stands below `advice:`; write its prose there, indented
      advice:
      ^
    "#);
    insta::assert_snapshot!(mistakes(""), @r#"
    x.lab:1:1: there is no step; write at least one, such as `A> select 1`
      
      ^
    "#);
    insta::assert_snapshot!(mistakes("# Only a title\n"), @r#"
    x.lab:1:1: there is no step; write at least one, such as `A> select 1`
      # Only a title
      ^
    "#);
}

#[test]
fn what_only_the_whole_shows() {
    insta::assert_snapshot!(mistakes("\
engines: mysql memory
strategies: advisory
buckets: 3
anomaly: G1a
sessions: isolation serializable
session C: autocommit off
setup:
  select 1;
A> select 1
"), @r#"
    x.lab:2:1: `strategies:` is for lock steps, and there are none (`A> lock u1`)
      strategies: advisory
      ^
    x.lab:3:1: `buckets:` is for lock steps, and there are none (`A> lock u1`)
      buckets: 3
      ^
    x.lab:4:1: nothing says what would show the anomaly; write ` ! …` below the step that would
      anomaly: G1a
      ^
    x.lab:5:11: memory has no settings; take it out of `engines:`, or guard this with the engines that have
      sessions: isolation serializable
                ^
    x.lab:6:9: C does nothing in this scenario
      session C: autocommit off
              ^
    x.lab:6:12: memory has no settings; take it out of `engines:`, or guard this with the engines that have
      session C: autocommit off
                 ^
    x.lab:8:3: memory has no SQL; take it out of `engines:`, or guard this with the engines that have
        select 1;
        ^
    x.lab:9:4: memory has no SQL; take it out of `engines:`, or guard this with the engines that have
      A> select 1
         ^
    "#);
    insta::assert_snapshot!(mistakes("\
engines: mysql
strategies: advisory
A> lock u1
 ! done
"), @r#"
    x.lab:2:1: mysql has none of these strategies; it has striped, per-id and on-demand
      strategies: advisory
      ^
    x.lab:4:2: ` ! …` says what would show an anomaly; name it above, with `anomaly: …`
       ! done
       ^
    "#);
    insta::assert_snapshot!(mistakes("\
for each isolation: read committed | serializable
sessions: isolation read committed
A> lock u1
"), @r#"
    x.lab:1:10: isolation matters only to SQL, and there is none
      for each isolation: read committed | serializable
               ^
    x.lab:2:11: memory has no settings; take it out of `engines:`, or guard this with the engines that have
      sessions: isolation read committed
                ^
    x.lab:2:11: the isolation level varies (line 1), and this would set it to one; leave it out
      sessions: isolation read committed
                ^
    "#);
}

#[test]
fn sessions_that_are_not_there() {
    insta::assert_snapshot!(mistakes("\
A> select 1
 = blocked by C
B> select 1
 = blocked by A and B
B> select 1
 = deadlock, A or D
 = [mysql] done
"), @r#"
    x.lab:2:15: C does nothing in this scenario; its sessions are A and B
       = blocked by C
                    ^
    x.lab:4:21: this is a step of B, and nobody waits for itself
       = blocked by A and B
                          ^
    x.lab:6:19: D does nothing in this scenario; its sessions are A and B
       = deadlock, A or D
                        ^
    x.lab:7:2: this never counts, because a line above it fits first; put what has no brackets last
       = [mysql] done
       ^
    "#);
    insta::assert_snapshot!(mistakes("\
A> select 1
A< = by engine | *
A> select 1
 = error or done or blocked on node {held}
"), @r#"
    x.lab:2:4: a table begins on the line below
      A< = by engine | *
         ^
    x.lab:2:6: the table has no rows; each is ` : VALUE | what must be seen | …`
      A< = by engine | *
           ^
    x.lab:4:37: `{held}` is not the name of an axis
       = error or done or blocked on node {held}
                                          ^
    "#);
    insta::assert_snapshot!(mistakes("\
A> [mysql] select 1
B> select 1
 = [mysql] deadlock, A or B
A< = done
victim> rollback
"), @r#"
    x.lab:4:1: A has done nothing before this (mariadb), so there is nothing to look at
      A< = done
      ^
    x.lab:5:1: there is no deadlock before this (mariadb) of which `victim` could be one; it is expected with ` = deadlock, A or B`
      victim> rollback
      ^
    "#);
}
