package contenders;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

@SpringBootApplication
public class Application {
  public static void main(String[] arguments) {
    SpringApplication.run(Application.class, arguments);
  }
}

@RestController
class PrimesController {
  /** The deferred handler computes here, so that the request's thread is free at once. */
  private final Executor workers = ForkJoinPool.commonPool();

  @GetMapping("/primes/{n}")
  List<String> primes(@PathVariable int n) {
    return Primes.first(checked(n));
  }

  @GetMapping("/deferred/primes/{n}")
  CompletableFuture<List<String>> deferred(@PathVariable int n) {
    int count = checked(n);
    return CompletableFuture.supplyAsync(() -> Primes.first(count), workers);
  }

  private static int checked(int n) {
    if (n < 0 || n > Primes.MOST) {
      throw new ResponseStatusException(HttpStatus.BAD_REQUEST, "n must be 0 to " + Primes.MOST);
    }
    return n;
  }
}
