/**
 * Looks into the gateway through Node's inspector, so that nothing has to be added to the product: collects garbage,
 * reads the used heap, and moves the wall clock.
 */
import { WebSocket } from "undici";

export async function openInspector(url) {
  const socket = new WebSocket(url);
  const waiting = new Map();
  let lastId = 0;
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve, { once: true });
    socket.addEventListener("error", reject, { once: true });
  });
  let isOpen = true;
  const endAll = () => {
    isOpen = false;
    for (const { reject } of waiting.values()) reject(new Error("the inspector is gone"));
    waiting.clear();
  };
  socket.addEventListener("close", endAll);
  socket.addEventListener("error", endAll);
  socket.addEventListener("message", ({ data }) => {
    const { id, result, error } = JSON.parse(data);
    const call = waiting.get(id);
    if (call === undefined) return;
    waiting.delete(id);
    if (error) call.reject(new Error(error.message));
    else call.resolve(result);
  });
  const send = (method, params = {}) =>
    new Promise((resolve, reject) => {
      if (!isOpen) {
        reject(new Error("the inspector is gone"));
        return;
      }
      const id = ++lastId;
      waiting.set(id, { resolve, reject });
      socket.send(JSON.stringify({ id, method, params }));
    });
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return result.value;
  };

  return {
    /** Bytes in use after a forced collection. */
    async usedHeapBytes() {
      // Twice: the first lets finalizers run, the second takes what they let go.
      await send("HeapProfiler.collectGarbage");
      await send("HeapProfiler.collectGarbage");
      return (await send("Runtime.getHeapUsage")).usedSize;
    },
    /** Bytes outside of the heap that objects of the main thread own, for example buffers. */
    externalBytes: () => evaluate("process.memoryUsage().external"),
    /** The wall clock reads this much more than the system's; timers and the monotonic clock go on undisturbed. */
    moveClock: (milliseconds) =>
      evaluate(`globalThis.chaosNow ??= Date.now; Date.now = () => globalThis.chaosNow() + (${milliseconds}); 0`),
    close: () => socket.close(),
  };
}
