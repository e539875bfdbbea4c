package contenders;

import java.util.ArrayList;
import java.util.List;

/** The algorithm of every contender: trial division by the primes found so far, up to the root. */
final class Primes {
  static final int MOST = 100_000;

  private Primes() {}

  static List<String> first(int n) {
    int[] primes = new int[n];
    List<String> texts = new ArrayList<>(n);
    int found = 0;
    for (int candidate = 2; found < n; candidate++) {
      if (isPrime(candidate, primes, found)) {
        primes[found++] = candidate;
        texts.add(Integer.toString(candidate));
      }
    }
    return texts;
  }

  private static boolean isPrime(int candidate, int[] primes, int found) {
    for (int index = 0; index < found; index++) {
      int prime = primes[index];
      if (prime * prime > candidate) {
        return true;
      }
      if (candidate % prime == 0) {
        return false;
      }
    }
    return true;
  }
}
