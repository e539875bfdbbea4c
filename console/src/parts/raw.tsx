import { useState } from 'preact/hooks';
import { write } from '../lib/exact';
import { say } from '../state/toast';

/** Puts a text on the clipboard, also where the page came over plain HTTP and has none of its own. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement('textarea');
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand('copy');
    field.remove();
    return isDone;
  }
}

/** Buttons that copy a value as JSON, and show it as it is. */
export function Raw({ value, what }: { value: unknown; what: string }) {
  const [isShown, setShown] = useState(false);
  const run = async () => {
    say((await copy(write(value, 2))) ? `Copied: ${what}.` : 'The browser does not let the page copy.');
  };
  return (
    <>
      <div class="row">
        <button type="button" class="button plain" aria-label={`Copy ${what} as JSON`} onClick={() => void run()}>
          Copy
        </button>
        <button
          type="button"
          class="button plain"
          aria-expanded={isShown}
          aria-label={`Raw JSON of ${what}`}
          onClick={() => setShown(!isShown)}
        >
          Raw JSON
        </button>
      </div>
      {isShown && (
        <pre class="source raw" tabIndex={0}>
          {write(value, 2)}
        </pre>
      )}
    </>
  );
}
