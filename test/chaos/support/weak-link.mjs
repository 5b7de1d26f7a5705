/**
 * A TCP connection between the gateway and a backend that can be made bad: cut after a number of bytes, slow, or
 * silent. It passes bytes on with back-pressure and changes none.
 */
import { connect, createServer } from "node:net";

export async function openWeakLink(port) {
  const pairs = new Set();
  /** `pass`; `cut`: each direction ends after `bytes`; `slow`: `bytes` every 20 ms; `silent`: nothing passes. */
  let weather = { kind: "pass", bytes: 0 };

  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const pair = { near, far, left: weather.bytes };
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) socket.on("error", end).on("close", end);
    carry(pair, near, far);
    carry(pair, far, near);
  });

  function carry(pair, from, to) {
    let timer;
    from.on("readable", pump);
    from.on("end", () => to.end());
    from.on("close", () => clearTimeout(timer));
    to.on("drain", pump);
    pair.wake = [...(pair.wake ?? []), pump];

    function pump() {
      clearTimeout(timer);
      if (weather.kind === "silent" || to.writableNeedDrain || from.destroyed) return;
      if (weather.kind === "slow") {
        const chunk = from.read(Math.min(weather.bytes, from.readableLength)) ?? undefined;
        if (chunk !== undefined) to.write(chunk);
        if (from.readableLength > 0) timer = setTimeout(pump, 20);
        return;
      }
      for (let chunk = from.read(); chunk !== null; chunk = from.read()) {
        if (weather.kind !== "cut") to.write(chunk);
        else if (chunk.length < pair.left) {
          pair.left -= chunk.length;
          to.write(chunk);
        } else {
          to.write(chunk.subarray(0, pair.left), () => {
            pair.near.resetAndDestroy();
            pair.far.resetAndDestroy();
          });
          return;
        }
      }
    }
  }

  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: server.address().port,
    set(kind, bytes = 0) {
      weather = { kind, bytes };
      for (const pair of pairs) {
        pair.left = bytes;
        for (const wake of pair.wake ?? []) wake();
      }
    },
    close() {
      server.close();
      for (const { near, far } of pairs) {
        near.destroy();
        far.destroy();
      }
    },
  };
}
