/** The browser has this long to take a file. */
const KEPT_MS = 10_000;

/** Gives the browser a file of JSON, one value a line. */
export function save(name: string, lines: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([lines], { type: 'application/x-ndjson' }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
