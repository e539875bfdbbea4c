//! The payment provider as an order calls it.

mod provider;

pub use provider::{DECLINED_TOKEN, DemoProvider, Settings};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::OnceLock, time::Duration};
use throng_app::model::{Attempt, CallError, Outside};

/// A request to the provider. Each payment has a name. Under its name it is charged at most once and reversed at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentRequest {
    /// Charges the money.
    Charge {
        /// The name of the payment.
        payment: String,
        /// The cents to charge.
        cents: u64,
        /// The provider's token for the means of payment. It is no secret.
        token: String,
    },
    /// Returns the money. A payment that arrives later is refused.
    Reverse {
        /// The name of the payment.
        payment: String,
    },
}

/// The provider has done the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// The name of the payment.
    pub payment: String,
}

/// The provider refuses the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Declined {
    /// The provider's words.
    pub why: String,
}

/// The worker that calls the provider. A real service would use an HTTP client in place of [`DemoProvider`].
///
/// The default is a provider with the settings of the environment, opened at the first payment.
#[derive(Default)]
pub struct Payments {
    provider: OnceLock<Result<DemoProvider, String>>,
}

impl Payments {
    /// Returns a worker of this provider.
    #[must_use]
    pub fn new(provider: DemoProvider) -> Self {
        Self {
            provider: Ok(provider).into(),
        }
    }

    fn provider(&self) -> Result<&DemoProvider, CallError<Declined>> {
        let open = || {
            let opened = Settings::of_environment().and_then(DemoProvider::new);
            opened.map_err(|why| format!("{why:#}"))
        };
        let provider = self.provider.get_or_init(open).as_ref();
        provider.map_err(|why| CallError::NotSent(why.clone()))
    }
}

impl Outside for Payments {
    const NAME: &'static str = "payments";
    // With a provider that takes 100 ms, this gives 2,560 payments a second.
    const CONCURRENCY: usize = 256;
    const TIMEOUT: Duration = Duration::from_secs(10);
    const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(20));
    type Request = PaymentRequest;
    type Answer = Receipt;
    type Failure = Declined;

    async fn call(&self, request: PaymentRequest, _: &Attempt) -> Result<Receipt, CallError<Declined>> {
        self.provider()?.ask(request).await
    }
}
