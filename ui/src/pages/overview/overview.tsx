/**
 * Implements the home page: traffic, its health, and current problems.
 */
import { useEffect } from "preact/hooks";
import { dump } from "../../data/dump.ts";
import { history } from "../../data/history.ts";
import { usePoll } from "../../data/poll.ts";
import { requestList } from "../../data/requests.ts";
import { tasks } from "../../data/tasks.ts";
import { param } from "../../frame/router.ts";
import { Empty, PageHead, Skeleton } from "../../parts/panel.tsx";
import { Flow } from "./flow.tsx";
import { NodePanel } from "./node-panel.tsx";
import { Now, Problems } from "./now.tsx";
import { Numbers, RangeChoice } from "./numbers.tsx";
import { Recent } from "./recent.tsx";

export function Overview() {
  const loaded = usePoll(dump);
  usePoll(history);
  usePoll(tasks);
  // The palette and the node panel need recent requests.
  useEffect(() => requestList.watch(), []);
  const selected = param("node");
  return (
    <>
      <PageHead
        title="Overview"
        doc="Listeners → routes → backends. Lines show the last 10 seconds, charts the last 5 minutes."
      >
        <RangeChoice />
      </PageHead>
      {loaded === undefined ? (
        <Skeleton lines={6} />
      ) : loaded.listeners.length === 0 ? (
        <Empty title="No listeners" yaml={EXAMPLE}>
          <p>Traffic appears here when a listener, a route and a backend are configured. The smallest configuration:</p>
        </Empty>
      ) : (
        <>
          <Numbers />
          <Problems dump={loaded} />
          <div class={selected === "" ? "split" : "split node-open"}>
            <Flow dump={loaded} selected={selected} />
            {selected === "" ? null : <NodePanel dump={loaded} id={selected} />}
          </div>
          <Recent dump={loaded} />
          <Now dump={loaded} />
        </>
      )}
    </>
  );
}

const EXAMPLE = `gateways:
  default:
    port: 3000
routes:
  - name: hello
    backends:
      - host: 127.0.0.1:8080`;
