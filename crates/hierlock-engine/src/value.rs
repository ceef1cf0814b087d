//! A value that is bound to a statement, never written into its text.

/// A value for a column: of a bool, a number, text or bytes, or an `Option` of these.
///
/// ```
/// use hierlock_engine::Value;
///
/// let values: [Value; 4] = [7.into(), "Ada".into(), true.into(), None::<String>.into()];
/// # let _ = values;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Value(pub(crate) Bound);

/// What is bound. NULL has a type too: PostgreSQL asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    Bool(Option<bool>),
    Int(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    // Arrays, which only PostgreSQL has.
    BoolArray(Vec<bool>),
    Int4Array(Vec<i32>),
    IntArray(Vec<i64>),
    BytesArray(Vec<Vec<u8>>),
}

impl Value {
    /// Returns whether it is NULL.
    pub fn is_null(&self) -> bool {
        match &self.0 {
            Bound::Bool(value) => value.is_none(),
            Bound::Int(value) => value.is_none(),
            Bound::Float(value) => value.is_none(),
            Bound::Text(value) => value.is_none(),
            Bound::Bytes(value) => value.is_none(),
            Bound::BoolArray(_)
            | Bound::Int4Array(_)
            | Bound::IntArray(_)
            | Bound::BytesArray(_) => false,
        }
    }
}

macro_rules! from {
    ($($bound:ident: $($given:ty),*;)*) => {
        $($(
            impl From<$given> for Value {
                fn from(value: $given) -> Self {
                    Value(Bound::$bound(Some(value.into())))
                }
            }

            impl From<Option<$given>> for Value {
                fn from(value: Option<$given>) -> Self {
                    Value(Bound::$bound(value.map(Into::into)))
                }
            }
        )*)*
    };
}

from! {
    Bool: bool;
    Int: i64, i32, i16, u32, u16, u8;
    Float: f64, f32;
    Text: String, &str;
    Bytes: Vec<u8>, &[u8];
}

macro_rules! from_array {
    ($($bound:ident: $given:ty;)*) => {
        $(/// For PostgreSQL alone.
        impl From<$given> for Value {
            fn from(values: $given) -> Self {
                Value(Bound::$bound(values))
            }
        })*
    };
}

from_array! {
    BoolArray: Vec<bool>;
    Int4Array: Vec<i32>;
    IntArray: Vec<i64>;
    BytesArray: Vec<Vec<u8>>;
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Value::from(value.as_str())
    }
}
