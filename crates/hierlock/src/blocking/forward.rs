//! Gives a blocking type the methods of its async version.

/// Writes methods that call the method of the same name on the async version, which is the field `0`, and wait for the
/// result of an `async fn`. `=> wrap` converts the result into a blocking type; for an `async fn`, the value of its `Ok`.
/// `=> given` after a parameter is the argument that is passed to the async version.
macro_rules! forward {
    ($async_type:literal) => {};
    ($async_type:literal $(#[$attribute:meta])* async fn $name:ident($($parameters:tt)*)
        $(-> $result:ty)? $(=> $wrap:expr)?; $($rest:tt)*) => {
        forward!(@receiver ($($parameters)*)
            ($async_type [$(#[$attribute])*] $name [$(-> $result)?] wait [$($wrap)?]));
        forward!($async_type $($rest)*);
    };
    ($async_type:literal $(#[$attribute:meta])* fn $name:ident($($parameters:tt)*)
        $(-> $result:ty)? $(=> $wrap:expr)?; $($rest:tt)*) => {
        forward!(@receiver ($($parameters)*)
            ($async_type [$(#[$attribute])*] $name [$(-> $result)?] call [$($wrap)?]));
        forward!($async_type $($rest)*);
    };

    (@receiver (&mut $self:ident $($arguments:tt)*) $method:tt) => {
        forward!(@method $self [&mut $self] ($($arguments)*) $method);
    };
    (@receiver (&$self:ident $($arguments:tt)*) $method:tt) => {
        forward!(@method $self [&$self] ($($arguments)*) $method);
    };
    (@receiver ($self:ident $($arguments:tt)*) $method:tt) => {
        forward!(@method $self [$self] ($($arguments)*) $method);
    };

    (@method $self:ident [$($receiver:tt)*] ($(, $argument:ident: $type:ty $(=> $given:expr)?)*)
        ($async_type:literal [$($attributes:tt)*] $name:ident [$($result:tt)*]
            $how:ident [$($wrap:expr)?])) => {
        #[doc = concat!("See [`", $async_type, "::", stringify!($name), "`].")]
        $($attributes)*
        pub fn $name($($receiver)* $(, $argument: $type)*) $($result)* {
            forward!(@$how $self.0.$name($(forward!(@given $argument $($given)?)),*) $(, $wrap)?)
        }
    };

    (@given $argument:ident) => { $argument };
    (@given $argument:ident $given:expr) => { $given };
    (@wait $call:expr) => { $crate::blocking::wait_for($call) };
    (@wait $call:expr, $wrap:expr) => { $crate::blocking::wait_for($call).map($wrap) };
    (@call $call:expr) => { $call };
    (@call $call:expr, $wrap:expr) => { $wrap($call) };
}
pub(super) use forward;
