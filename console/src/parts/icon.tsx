/** A drawing of `icons.svg`; what it means stands beside it in words. */
export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" aria-hidden="true" focusable="false">
      <use href={`/console/icons.svg#${name}`} />
    </svg>
  );
}
