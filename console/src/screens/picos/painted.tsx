import { useMemo } from 'preact/hooks';
import { paint } from '../../lib/krl';

/** KRL with its words, texts and comments told apart. */
export function Painted({ krl }: { krl: string }) {
  const pieces = useMemo(() => paint(krl), [krl]);
  return (
    <>
      {pieces.map(({ paint, text }, at) =>
        paint === 'plain' ? (
          text
        ) : (
          <span key={at} class={`krl-${paint}`}>
            {text}
          </span>
        ),
      )}
    </>
  );
}
