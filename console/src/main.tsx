import { render } from 'preact';
import { App } from './app';
import { placeIcons } from './parts/icon';
import { start } from './state/live';
import './style/main.css';

const root = document.getElementById('app');
if (root) {
  placeIcons();
  render(<App />, root);
  start();
}
