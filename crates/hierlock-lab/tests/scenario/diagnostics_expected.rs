//! Errors in expectations, and of a file as a whole.

use crate::diagnostics::diagnostics;

#[test]
fn errors_of_expectations_are_reported() {
    insta::assert_snapshot!(diagnostics("\
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
    x.lab:2:3: the expectation is missing; it is `= done`, `= blocked by A`, `= rows 30` …
       =
        ^
    x.lab:4:4: `doen` is not an expectation; did you mean `done`? There are done, rows, no rows, changed, blocked, deadlock, timed out, refused, conflict and error
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
    x.lab:12:12: unexpected `2`; after a comma comes `rows …`, `changed 1` or `in any order` (and a row of several cells is written `(1, 30)`)
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
    x.lab:24:13: unexpected `A`; it is `deadlock` (of this session), or `deadlock, A or B` where the engine chooses
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
    x.lab:32:9: unexpected `done`; after `done` comes nothing, `, in any order` or `or …`; rows go on lines below, each after a `|`
       = done done
              ^
    x.lab:34:4: `in any order` is about rows; write them below, each after a `|`
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
    x.lab:45:11: the expectation is missing; there are done, rows, no rows, changed, blocked, deadlock, timed out, refused, conflict and error
       = done or
                ^
    "#);
}

#[test]
fn errors_of_tables_are_reported() {
    insta::assert_snapshot!(diagnostics("\
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
    x.lab:13:19: the cell is empty; write an expectation, at least `done`
       : serializable | | done
                        ^
    x.lab:15:4: the table has no rows; each is ` : VALUE | EXPECTATION | …`
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
    x.lab:28:2: a table cannot have rows below it; write them in its cells, as in `rows 30 10`
       | 1
       ^
    "#);
    insta::assert_snapshot!(diagnostics("\
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
fn errors_of_blocks_and_their_order_are_reported() {
    insta::assert_snapshot!(diagnostics("\x20 stray
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
    x.lab:11:1: this step is after `teardown:`, which belongs before the first step or after the last
      A> select 2
      ^
    x.lab:14:1: `advice:` is the last thing in a file; put this before it
      A> select 1
      ^
    "#);
    insta::assert_snapshot!(diagnostics("setup:\n  insert into t values ('a);\n"), @r#"
    x.lab:2:25: this ' is not closed; a quote inside of quotes is written twice
        insert into t values ('a);
                              ^
    "#);
    insta::assert_snapshot!(diagnostics("setup:\n  create function f() as $$ begin; end;\nadvice:\n"), @r#"
    x.lab:2:26: $$ is not closed
        create function f() as $$ begin; end;
                               ^
    x.lab:3:1: `advice:` is empty; write its prose below, indented
      advice:
      ^
    "#);
    insta::assert_snapshot!(diagnostics(""), @r#"
    x.lab:1:1: there is no step; write at least one, such as `A> select 1`
      
      ^
    "#);
    insta::assert_snapshot!(diagnostics("# Only a title\n"), @r#"
    x.lab:1:1: there is no step; write at least one, such as `A> select 1`
      # Only a title
      ^
    "#);
}

#[test]
fn errors_of_the_whole_file_are_reported() {
    insta::assert_snapshot!(diagnostics("\
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
    insta::assert_snapshot!(diagnostics("\
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
    insta::assert_snapshot!(diagnostics("\
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
fn errors_of_unknown_sessions_are_reported() {
    insta::assert_snapshot!(diagnostics("\
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
    x.lab:4:21: this is a step of B, and a session cannot wait for itself
       = blocked by A and B
                          ^
    x.lab:6:19: D does nothing in this scenario; its sessions are A and B
       = deadlock, A or D
                        ^
    x.lab:7:2: this never counts, because a line above it fits first; put what has no brackets last
       = [mysql] done
       ^
    "#);
    insta::assert_snapshot!(diagnostics("\
A> select 1
A< = by engine | *
A> select 1
 = error or done or blocked on node {held}
"), @r#"
    x.lab:2:4: a table begins on the line below
      A< = by engine | *
         ^
    x.lab:2:6: the table has no rows; each is ` : VALUE | EXPECTATION | …`
      A< = by engine | *
           ^
    x.lab:4:37: `{held}` is not the name of an axis
       = error or done or blocked on node {held}
                                          ^
    "#);
    insta::assert_snapshot!(diagnostics("\
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
