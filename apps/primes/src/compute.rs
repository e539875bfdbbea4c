//! The computation, as pure functions.

/// The largest n. The 100,000th prime is 1,299,709, and takes a few hundredths of a second.
pub const MOST: usize = 100_000;

/// Returns the first `n` primes, at most [`MOST`].
///
/// Trial division by the primes found so far, up to the root. The original divides by *all* smaller numbers. This version computes the same with less
/// work, and the servers in the comparison use it, too.
///
/// ```
/// assert_eq!(primes::first(5), [2, 3, 5, 7, 11]);
/// ```
#[must_use]
pub fn first(n: usize) -> Vec<u32> {
    let n = n.min(MOST);
    let mut primes = Vec::with_capacity(n);
    let mut candidate = 2;
    while primes.len() < n {
        if is_prime(candidate, &primes) {
            primes.push(candidate);
        }
        candidate += 1;
    }
    primes
}

/// True if no smaller prime divides the candidate.
fn is_prime(candidate: u32, smaller: &[u32]) -> bool {
    for &prime in smaller {
        if prime * prime > candidate {
            return true;
        }
        if candidate.is_multiple_of(prime) {
            return false;
        }
    }
    true
}

/// Returns the first `n` primes as a JSON array of strings.
///
/// ```
/// assert_eq!(primes::json(3), br#"["2","3","5"]"#);
/// ```
#[must_use]
pub fn json(n: usize) -> Vec<u8> {
    let primes = first(n);
    // For each prime: the digits of the largest one, two quotes and a comma.
    let digits = primes.last().map_or(0, |largest| largest.ilog10() as usize + 1);
    let mut text = Vec::with_capacity(2 + primes.len() * (digits + 3));
    text.push(b'[');
    for (place, prime) in primes.iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        text.push(b'"');
        decimal(*prime, &mut text);
        text.push(b'"');
    }
    text.push(b']');
    text
}

fn decimal(mut number: u32, text: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 10;
    let mut digits = [b'0'; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_twenty_are_those_of_the_contract() {
        let text = String::from_utf8(json(20)).unwrap();
        assert_eq!(
            text,
            r#"["2","3","5","7","11","13","17","19","23","29","31","37","41","43","47","53","59","61","67","71"]"#
        );
        assert_eq!(json(0), b"[]");
        assert_eq!(json(1), br#"["2"]"#);
    }

    #[test]
    fn the_last_that_is_answered_is_known() {
        assert_eq!(first(MOST).last(), Some(&1_299_709));
        assert_eq!(first(MOST + 1).len(), MOST);
    }

    proptest! {
        #[test]
        fn no_prime_is_left_out_and_none_has_a_divisor(n in 0_usize..2_000) {
            let primes = first(n);
            prop_assert_eq!(primes.len(), n);
            let by_all = |number: u32| number >= 2 && (2..number).all(|divisor| !number.is_multiple_of(divisor));
            let naive: Vec<u32> = (2..).filter(|number| by_all(*number)).take(n.min(200)).collect();
            prop_assert_eq!(&primes[..n.min(200)], &naive[..]);
        }

        #[test]
        fn numbers_are_written_as_they_are_read(number: u32) {
            let mut text = Vec::new();
            decimal(number, &mut text);
            prop_assert_eq!(String::from_utf8(text).unwrap(), number.to_string());
        }
    }
}
