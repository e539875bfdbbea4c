/** Styles that esbuild bundles. */
declare module '*.css';

/** Drawings that esbuild puts into the script, as text. */
declare module '*.svg' {
  const text: string;
  export default text;
}
