/**
 * Shows the memory of the process, its heap, and the gateway's components.
 */

import { bytesText } from "../../../../src/base/format.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { Fold } from "../../parts/fold.tsx";
import { Json } from "../../parts/json.tsx";
import { Panel, Skeleton } from "../../parts/panel.tsx";

interface MemoryReport {
  readonly process: { readonly rssBytes: number; readonly peakRssBytes: number };
  readonly heap: {
    readonly usedBytes: number;
    readonly totalBytes: number;
    readonly limitBytes: number;
    readonly spaces: readonly { readonly name: string; readonly usedBytes: number; readonly sizeBytes: number }[];
  };
  readonly external: { readonly bytes: number; readonly arrayBufferBytes: number };
  readonly parts: Readonly<Record<string, unknown>>;
}

const memory = createPoll(() => getJson<MemoryReport>("memory"), 3_000);

export function Memory() {
  const report = usePoll(memory);
  if (!report) return <Panel title="Memory">{memory.error.value ?? <Skeleton lines={6} />}</Panel>;
  const { process, heap, external } = report;
  const spaces = heap.spaces.filter(({ sizeBytes }) => sizeBytes > 0);
  return (
    <Panel title="Memory" end={<span class="muted">peak {bytesText(process.peakRssBytes)}</span>}>
      <div class="stack">
        <table>
          <tbody>
            <Row name="Process (RSS)" used={process.rssBytes} of={process.peakRssBytes} />
            <Row name="Heap" used={heap.usedBytes} of={heap.totalBytes} />
            <Row name="External" used={external.bytes} of={process.rssBytes} />
          </tbody>
        </table>
        <Fold title="By component">{() => <Json value={report.parts} open={1} />}</Fold>
        <Fold title="Advanced: V8 heap spaces">
          {() => (
            <table>
              <tbody>
                {spaces.map(({ name, usedBytes, sizeBytes }) => (
                  <Row key={name} name={name.replaceAll("_", " ")} used={usedBytes} of={sizeBytes} />
                ))}
              </tbody>
            </table>
          )}
        </Fold>
      </div>
    </Panel>
  );
}

function Row({ name, used, of }: { name: string; used: number; of: number }) {
  return (
    <tr>
      <td>{name}</td>
      <td class="gauge-cell">
        <span class="gauge" aria-hidden="true">
          <span style={{ width: `${of === 0 ? 0 : Math.min(100, (used / of) * 100)}%` }} />
        </span>
      </td>
      <td class="number">{bytesText(used)}</td>
      <td class="number muted">{bytesText(of)}</td>
    </tr>
  );
}
