//! Services as traits, implemented by drivers and by [`Client`](crate::Client).

use hyper::body::Incoming;
use prost::Message;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::error::Error;

/// Defines a service's trait, its client, and a function that adds a driver's service to a server. A method `has` a
/// field with secrets in its request: the client removes them from errors.
macro_rules! service {
    ($service:ident, $serve:ident in $package:literal {
        $($name:ident $method:ident($request:ident) -> $response:ident $(has $secrets:ident)?;)*
    }) => {
        #[doc = concat!("The service `", $package, ".", stringify!($service), "`.")]
        ///
        /// Methods that are not implemented return `Unimplemented`.
        pub trait $service: Send + Sync {
            $(
                #[doc = concat!("The call `", stringify!($service), ".", stringify!($name), "`.")]
                fn $method(
                    &self,
                    request: $request,
                ) -> impl Future<Output = Result<$response, $crate::Error>> + Send {
                    let _ = request;
                    async {
                        let path = concat!("/", $package, ".", stringify!($service), "/", stringify!($name));
                        Err($crate::server::unimplemented(path).into())
                    }
                }
            )*
        }

        impl $service for $crate::Client {
            $(
                async fn $method(&self, request: $request) -> Result<$response, $crate::Error> {
                    let secrets: Option<$crate::Secrets> = [$(request.$secrets.clone())?].into_iter().next();
                    let path = concat!("/", $package, ".", stringify!($service), "/", stringify!($name));
                    self.call(path, request, secrets).await
                }
            )*
        }

        pub(crate) fn $serve<D: $service + 'static>(server: &mut $crate::Server, driver: std::sync::Arc<D>) {
            let handler: $crate::server::Handler = Box::new(move |request| {
                let driver = driver.clone();
                Box::pin(async move {
                    match request.uri().path() {
                        $(
                            concat!("/", $package, ".", stringify!($service), "/", stringify!($name)) => {
                                $crate::service::unary(request, |request: $request| driver.$method(request)).await
                            }
                        )*
                        path => $crate::server::unimplemented(path).into_http(),
                    }
                })
            });
            server.services.insert(concat!($package, ".", stringify!($service)), handler);
        }
    };
}

/// Decodes a request, makes the call, and encodes its response.
pub(crate) async fn unary<Q, A, F>(
    request: http::Request<Incoming>,
    mut call: impl FnMut(Q) -> F,
) -> http::Response<Body>
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
