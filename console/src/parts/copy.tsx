import { useState } from 'preact/hooks';
import { complain } from '../state/toast';

const SAID_MS = 2_000;

/** Text that a shell takes as it stands, and a button that copies it. */
export function Copyable({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), SAID_MS);
      },
      () => complain('The browser lets nothing be copied here: select the text.'),
    );
  return (
    <div class="copyable">
      <pre>{text}</pre>
      <button type="button" class="button" onClick={() => void copy()}>
        {isCopied ? 'Copied' : 'Copy'}
      </button>
    </div>
  );
}
