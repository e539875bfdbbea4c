import { render } from 'preact';
import { App } from './app';
import { start } from './state/live';
import './style/main.css';

const root = document.getElementById('app');
if (root) {
  render(<App />, root);
  start();
}
