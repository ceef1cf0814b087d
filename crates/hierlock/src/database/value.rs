//! A value that is bound to a statement, never written into its text.

/// A value for a column: of a bool, a number, text or bytes, or an `Option` of these.
///
/// ```
/// use hierlock::database::Value;
///
/// let values: [Value; 4] = [7.into(), "Ada".into(), true.into(), None::<String>.into()];
/// # let _ = values;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Value(pub(super) Inner);

/// What is not there has a type too: PostgreSQL asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Inner {
    Bool(Option<bool>),
    Int(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl Value {
    pub(crate) fn is_null(&self) -> bool {
        match &self.0 {
            Inner::Bool(value) => value.is_none(),
            Inner::Int(value) => value.is_none(),
            Inner::Float(value) => value.is_none(),
            Inner::Text(value) => value.is_none(),
            Inner::Bytes(value) => value.is_none(),
        }
    }
}

macro_rules! from {
    ($($inner:ident: $($given:ty),*;)*) => {
        $($(
            impl From<$given> for Value {
                fn from(value: $given) -> Self {
                    Value(Inner::$inner(Some(value.into())))
                }
            }

            impl From<Option<$given>> for Value {
                fn from(value: Option<$given>) -> Self {
                    Value(Inner::$inner(value.map(Into::into)))
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

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Value::from(value.as_str())
    }
}
