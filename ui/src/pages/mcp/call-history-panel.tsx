/**
 * Lists the calls of this tab. Selecting one shows its arguments and result again.
 */

import { durationText } from "../../../../src/base/format.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { ClockTime } from "../../parts/time.tsx";
import { hasFailed, type PastCall, pastCalls } from "./call-history.ts";

export function CallHistory(props: {
  readonly endpoint: string;
  readonly selected: number | undefined;
  onOpen(call: PastCall): void;
}) {
  const calls = pastCalls.value.filter(({ endpoint }) => endpoint === props.endpoint);
  if (calls.length === 0) return null;
  return (
    <Panel
      title="History"
      end={
        <button type="button" class="button" onClick={() => (pastCalls.value = [])}>
          Clear
        </button>
      }
      flush
    >
      <table class="call-history">
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Call</th>
            <th scope="col">Arguments</th>
            <th scope="col">Result</th>
            <th scope="col" class="number">
              Duration
            </th>
            <th scope="col">
              <span class="unseen">Trace</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {calls.map((call) => (
            <tr key={call.id} class={call.id === props.selected ? "selected" : ""}>
              <td class="mono">
                <ClockTime at={call.at} />
              </td>
              <td>
                <button type="button" class="as-link mono" onClick={() => props.onOpen(call)}>
                  {visible(call.name)}
                </button>
              </td>
              <td class="mono ellipsis" title={visible(JSON.stringify(call.args))}>
                {visible(JSON.stringify(call.args))}
              </td>
              <td>
                <Status level={hasFailed(call.run) ? "bad" : "ok"}>{hasFailed(call.run) ? "failed" : "done"}</Status>
              </td>
              <td class="number">{durationText((call.run.endedMs ?? 0) - call.run.startedMs)}</td>
              <td>
                {call.run.requestId === undefined ? null : (
                  <a href={pageHref("requests", { id: call.run.requestId })}>trace</a>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}
