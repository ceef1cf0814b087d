//! A value that is bound to a statement.

use sqlx::database::Database;
use sqlx::error::BoxDynError;
use sqlx::query::Query;
use sqlx::{Arguments as _, Encode, SqlStr, Type};

/// A value for a column: a bool, a number, text, bytes, or an `Option` of these.
///
/// ```
/// use hierlock_engine::Value;
///
/// let values: [Value; 4] = [7.into(), "Ada".into(), true.into(), None::<String>.into()];
/// # let _ = values;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Value(TypedValue);

/// NULL has a type too, because PostgreSQL requires one.
#[derive(Clone, Debug, PartialEq)]
enum TypedValue {
    Bool(Option<bool>),
    Int(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Array(Array),
}

/// Arrays, which only PostgreSQL has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Array {
    Bool(Vec<bool>),
    Int4(Vec<i32>),
    Int(Vec<i64>),
    Bytes(Vec<Vec<u8>>),
}

impl Value {
    /// Returns whether the value is NULL.
    pub fn is_null(&self) -> bool {
        use TypedValue::{Bool, Bytes, Float, Int, Text};
        matches!(self.0, Bool(None) | Int(None) | Float(None) | Text(None) | Bytes(None))
    }
}

pub(crate) trait ValueDatabase: Database {
    fn add_array(_: &mut Self::Arguments, array: Array) -> Result<(), BoxDynError> {
        Err(format!("{array:?} is for PostgreSQL alone").into())
    }
}

#[cfg(feature = "mysql")]
impl ValueDatabase for sqlx::MySql {}

#[cfg(feature = "sqlite")]
impl ValueDatabase for sqlx::Sqlite {}

#[cfg(feature = "postgres")]
impl ValueDatabase for sqlx::Postgres {
    fn add_array(arguments: &mut Self::Arguments, array: Array) -> Result<(), BoxDynError> {
        match array {
            Array::Bool(values) => arguments.add(values),
            Array::Int4(values) => arguments.add(values),
            Array::Int(values) => arguments.add(values),
            Array::Bytes(values) => arguments.add(values),
        }
    }
}

pub(crate) fn query<DB: ValueDatabase>(
    sql: SqlStr,
    values: impl IntoIterator<Item = Value>,
) -> sqlx::Result<Query<'static, DB, DB::Arguments>>
where
    for<'t> Option<bool>: Encode<'t, DB> + Type<DB>,
    for<'t> Option<i64>: Encode<'t, DB> + Type<DB>,
    for<'t> Option<f64>: Encode<'t, DB> + Type<DB>,
    for<'t> Option<String>: Encode<'t, DB> + Type<DB>,
    for<'t> Option<Vec<u8>>: Encode<'t, DB> + Type<DB>,
    DB::Arguments: sqlx::IntoArguments<DB>,
{
    let mut arguments = DB::Arguments::default();
    for value in values {
        let added = match value.0 {
            TypedValue::Bool(value) => arguments.add(value),
            TypedValue::Int(value) => arguments.add(value),
            TypedValue::Float(value) => arguments.add(value),
            TypedValue::Text(value) => arguments.add(value),
            TypedValue::Bytes(value) => arguments.add(value),
            TypedValue::Array(array) => DB::add_array(&mut arguments, array),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(sqlx::query_with(sql, arguments))
}

macro_rules! from {
    ($($variant:ident: $($given:ty),*;)*) => {
        $($(
            impl From<$given> for Value {
                fn from(value: $given) -> Self {
                    Value(TypedValue::$variant(Some(value.into())))
                }
            }

            impl From<Option<$given>> for Value {
                fn from(value: Option<$given>) -> Self {
                    Value(TypedValue::$variant(value.map(Into::into)))
                }
            }
        )*)*
    };
}

from! {
    Bool: bool;
    Int: i64, i32, i16, u32, u16, u8;
    Float: f64, f32;
    Text: String, &String, &str;
    Bytes: Vec<u8>, &[u8];
}

macro_rules! from_array {
    ($($variant:ident: $given:ty;)*) => {
        $(/// Only for PostgreSQL.
        impl From<$given> for Value {
            fn from(values: $given) -> Self {
                Value(TypedValue::Array(Array::$variant(values)))
            }
        })*
    };
}

from_array! {
    Bool: Vec<bool>;
    Int4: Vec<i32>;
    Int: Vec<i64>;
    Bytes: Vec<Vec<u8>>;
}
