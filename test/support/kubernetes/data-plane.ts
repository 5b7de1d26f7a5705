/** Runs a data plane with the snapshot of the Gateway `shop/edge`. */
import type { TestContext } from "node:test";
import { startApp } from "../../../src/app/app.ts";
import { systemClock } from "../../../src/base/clock.ts";
import type { KubernetesObject } from "../../../src/config/documents/cluster.ts";
import { createSnapshot } from "../../../src/config/documents/snapshot.ts";
import { type Applied, createSnapshotSource } from "../../../src/kubernetes/follow-controller.ts";

/** `port` is that of the listeners, which have port 0 in the Gateway. It is 0 if none is served. `applied` resolves with the next outcome. */
export async function dataPlane(
  t: TestContext,
  objects: readonly KubernetesObject[],
  endpoints: Readonly<Record<string, readonly string[]>>,
) {
  let heard = (_: Applied): void => undefined;
  const source = createSnapshotSource((_, outcome) => heard(outcome));
  source.take(createSnapshot("shop/edge", objects, endpoints));
  const app = await startApp({
    sources: { text: "config: { adminAddr: 127.0.0.1:0 }" },
    cluster: source,
    environment: {},
    clock: systemClock,
    output: { write: () => undefined, dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
  });
  t.after(() => Promise.all([app.stop(), app.stop()]));
  const applied = (): Promise<Applied> =>
    new Promise((resolve) => {
      heard = resolve;
    });
  return { app, source, applied, port: app.ports().get("shop/edge:0") ?? 0 };
}
