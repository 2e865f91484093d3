//! Services as traits: a driver implements them, and a client does too.

use std::future::Future;

use hyper::body::Incoming;
use prost::Message;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::error::Error;

/// A service's trait, its client, and the way from a call's name to the trait's method.
///
/// The client has a method `call(path, request)`, as [`Client`](crate::Client) has.
///
/// ```
/// use driver_rpc::{Client, service};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// pub struct PingRequest {}
/// #[derive(Clone, PartialEq, prost::Message)]
/// pub struct PingResponse {}
///
/// service! {
///     /// Whether the driver is there.
///     Health, health of Client in "example.v1" {
///         Ping ping(PingRequest) -> PingResponse;
///     }
/// }
/// ```
#[macro_export]
macro_rules! service {
    ($(#[$doc:meta])* $service:ident, $dispatch:ident of $client:ident in $package:literal {
        $($name:ident $method:ident($request:ident) -> $response:ident;)*
    }) => {
        $(#[$doc])*
        ///
        /// Methods that are left out answer `Unimplemented`.
        pub trait $service: Send + Sync {
            $(
                #[doc = concat!("The call `", stringify!($service), ".", stringify!($name), "`.")]
                fn $method(
                    &self,
                    request: $request,
                ) -> impl ::std::future::Future<Output = Result<$response, $crate::Error>> + Send {
                    let _ = request;
                    async {
                        Err($crate::unimplemented(concat!("/", $package, ".", stringify!($service), "/", stringify!($name))))
                    }
                }
            )*
        }

        impl $service for $client {
            $(
                async fn $method(&self, request: $request) -> Result<$response, $crate::Error> {
                    self.call(concat!("/", $package, ".", stringify!($service), "/", stringify!($name)), request).await
                }
            )*
        }

        /// Answers a call of the service.
        pub(crate) async fn $dispatch<D: $service>(
            driver: &D,
            request: $crate::private::Request<$crate::private::Incoming>,
        ) -> $crate::private::Response<$crate::private::Body> {
            match request.uri().path() {
                $(
                    concat!("/", $package, ".", stringify!($service), "/", stringify!($name)) => {
                        $crate::private::unary(request, |request: $request| driver.$method(request)).await
                    }
                )*
                path => $crate::Status::from($crate::unimplemented(path)).into_http(),
            }
        }
    };
}

/// The refusal of a call that a driver does not have.
pub fn unimplemented(path: &str) -> Error {
    Status::unimplemented(format!("this driver does not have {path}")).into()
}

/// Decodes a request, makes the call, and encodes its answer.
pub async fn unary<Q, A, F>(request: http::Request<Incoming>, mut call: impl FnMut(Q) -> F) -> http::Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Future<Output = Result<A, Error>>,
{
    let service = service_fn(move |request: Request<Q>| {
        let answer = call(request.into_inner());
        async move { Ok::<_, Status>(Response::new(answer.await?)) }
    });
    Grpc::new(ProstCodec::default()).unary(service, request).await
}
