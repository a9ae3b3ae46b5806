//! CEL types of Kubernetes around Rust types.

/// A CEL type of Kubernetes around a Rust type.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident($inner:ty), $type:ident = $cel:literal, $copy:ident) => {
        /// A copy of a value of this type; `None` for others.
        pub(super) fn $copy(value: &dyn cel::common::value::Val) -> Option<crate::value::Owned> {
            let own = value.downcast_ref::<$name>()?;
            Some(Box::new(own.clone()))
        }

        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(super) struct $name(pub(super) $inner);

        pub(super) static $type: cel::common::types::Type = cel::common::types::Type::new_unspecified_type($cel);

        impl cel::common::value::StaticVal for $name {}

        impl cel::common::value::Val for $name {
            fn get_type(&self) -> &cel::common::types::Type {
                &$type
            }

            fn cel_type() -> &'static cel::common::types::Type {
                &$type
            }

            fn equals(&self, other: &dyn cel::common::value::Val) -> bool {
                other.downcast_ref::<$name>().is_some_and(|other| self == other)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn cel::common::value::Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn std::any::Any> {
                Some(self)
            }
        }
    };
}
pub(super) use opaque;
