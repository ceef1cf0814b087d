//! Methods that only set or return one field.

/// Methods of a builder that return it with one field changed. `name: type` sets the field of that name;
/// `name(parameter: type) => field: value` sets a field, or a field of a field, to the value of the expression.
macro_rules! setters {
    () => {};
    ($(#[$attribute:meta])* $field:ident: $type:ty; $($rest:tt)*) => {
        setters!($(#[$attribute])* $field($field: $type) => $field: $field; $($rest)*);
    };
    ($(#[$attribute:meta])* $name:ident($($parameter:ident: $type:ty),*) =>
        $($field:ident).+: $value:expr; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(mut self $(, $parameter: $type)*) -> Self {
            self.$($field).+ = $value;
            self
        }
        setters!($($rest)*);
    };
}

/// Methods that return the value of an expression: `self: name -> type = expression`.
macro_rules! getters {
    ($self:ident: $($(#[$attribute:meta])* $name:ident -> $type:ty = $value:expr;)*) => {
        $($(#[$attribute])*
        pub fn $name(&$self) -> $type {
            $value
        })*
    };
}
