//! How a blocking type gets the methods of its async twin.

/// Writes methods that call the method of the same name on the async twin, which is the field `0`. What an `async fn`
/// of the twin returns is waited for. `=> wrap` makes a blocking type of what comes back; for an `async fn`, of its
/// `Ok`. `=> given` behind a parameter is what the twin gets for it.
macro_rules! forward {
    ($twin:literal) => {};
    ($twin:literal $(#[$attribute:meta])* async fn $name:ident($($parameters:tt)*)
        $(-> $result:ty)? $(=> $wrap:expr)?; $($rest:tt)*) => {
        forward!(@receiver ($($parameters)*)
            ($twin [$(#[$attribute])*] $name [$(-> $result)?] wait [$($wrap)?]));
        forward!($twin $($rest)*);
    };
    ($twin:literal $(#[$attribute:meta])* fn $name:ident($($parameters:tt)*)
        $(-> $result:ty)? $(=> $wrap:expr)?; $($rest:tt)*) => {
        forward!(@receiver ($($parameters)*)
            ($twin [$(#[$attribute])*] $name [$(-> $result)?] call [$($wrap)?]));
        forward!($twin $($rest)*);
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
        ($twin:literal [$($attributes:tt)*] $name:ident [$($result:tt)*]
            $how:ident [$($wrap:expr)?])) => {
        #[doc = concat!("See [`", $twin, "::", stringify!($name), "`].")]
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
