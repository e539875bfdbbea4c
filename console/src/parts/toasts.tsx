import { toasts, unsay } from '../state/toast';
import { Icon } from './icon';

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ key, text, isBad }) => (
        <div class={`toast ${isBad ? 'bad' : ''}`} key={key} role={isBad ? 'alert' : undefined}>
          <Icon name={isBad ? 'stopped' : 'good'} />
          <span class="toast-text">{text}</span>
          <button type="button" class="button plain icon-only" aria-label="Close" onClick={() => unsay(key)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
