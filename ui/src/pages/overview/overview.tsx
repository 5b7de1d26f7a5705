/**
 * Implements the home page: traffic, its health, and current problems.
 */
import { useEffect } from "preact/hooks";
import { dump } from "../../data/dump.ts";
import { nodes } from "../../data/nodes.ts";
import { usePoll } from "../../data/poll.ts";
import { requestList } from "../../data/requests.ts";
import { tasks } from "../../data/tasks.ts";
import { errors, range } from "../../data/traffic.ts";
import { param } from "../../frame/router.ts";
import { Empty, PageHead, Skeleton } from "../../parts/panel.tsx";
import { RangeChoice } from "../../parts/traffic-chart.tsx";
import { Flow } from "./flow.tsx";
import { NodePanel } from "./node-panel.tsx";
import { Now, Problems } from "./now.tsx";
import { Numbers } from "./numbers.tsx";
import { Recent } from "./recent.tsx";

export function Overview() {
  const loaded = usePoll(dump);
  usePoll(nodes);
  usePoll(errors);
  const { title, seconds } = range();
  useEffect(() => {
    void nodes.refresh();
    void errors.refresh();
  }, [seconds]);
  usePoll(tasks);
  // The palette and the node panel need recent requests.
  useEffect(() => requestList.watch(), []);
  const selected = param("node");
  return (
    <>
      <PageHead title="Overview" doc={`Traffic of the last ${title}.`}>
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
