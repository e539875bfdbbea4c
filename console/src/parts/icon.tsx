import sprite from '../icons.svg';

/** Puts all drawings into the page: one that is shown while the server is away needs nothing from it. */
export function placeIcons(): void {
  const drawings = new DOMParser().parseFromString(sprite.replaceAll('id="', 'id="icon-'), 'image/svg+xml');
  const element = document.importNode(drawings.documentElement, true);
  element.classList.add('icons');
  element.ariaHidden = 'true';
  document.body.append(element);
}

/** A drawing of `icons.svg`; what it means stands beside it in words. */
export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" aria-hidden="true" focusable="false">
      <use href={`#icon-${name}`} />
    </svg>
  );
}
