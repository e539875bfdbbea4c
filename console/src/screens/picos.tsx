import { Card, Empty } from '../parts/basic';

export function PicosScreen() {
  return (
    <>
      <div class="head">
        <h1>Picos</h1>
      </div>
      <Card>
        <Empty icon="picos" title="No picos are served here">
          <p>An engine of picos shows here its picos with their rulesets, channels and logs. Start one with:</p>
          <pre>throng serve --app picos</pre>
        </Empty>
      </Card>
    </>
  );
}
