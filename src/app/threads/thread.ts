/**
 * One thread as the main thread holds it: orders with their reports, and the end, whatever it comes from. Orders that a
 * thread did not answer before it ended are rejected.
 */
import type { MessagePort, Worker } from "node:worker_threads";
import type { RemoteRequest } from "../../admin/merge/remote-call.ts";
import type { StoreAnswer, StoreQuestion } from "../../store/remote-store.ts";
import type { FromThread, Order, Report, ToThread } from "./messages.ts";

export interface ThreadHandlers {
  log(text: string): void;
  /** The thread asks the main thread. */
  admin(request: RemoteRequest, port: MessagePort): void;
  store(question: StoreQuestion): Promise<StoreAnswer>;
  /** Once. */
  ended(reason: string): void;
}

export interface Thread {
  order(order: Order): Promise<Report>;
  admin(request: RemoteRequest, port: MessagePort): void;
  /** Gives the thread its end of the channel to another one. */
  connect(thread: number, port: MessagePort): void;
  terminate(): Promise<void>;
}

export function openThread(worker: Worker, handlers: ThreadHandlers): Thread {
  const waiting = new Map<number, { resolve(report: Report): void; reject(error: Error): void }>();
  let nextId = 1;
  let endedWith: string | undefined;
  let fault: string | undefined;

  worker.on("message", (message: FromThread) => {
    if (message.kind === "log") handlers.log(message.text);
    else if (message.kind === "admin") handlers.admin(message.request, message.port);
    else if (message.kind === "store")
      void handlers
        .store(message.question)
        .then((answer) => worker.postMessage({ kind: "store", answer } satisfies ToThread));
    else {
      waiting.get(message.id)?.resolve(message.report);
      waiting.delete(message.id);
    }
  });
  // Out of memory, or what even the thread's last resort could not catch; its end follows.
  worker.on("error", (error) => {
    fault = error.message;
  });
  worker.on("exit", (code) => {
    endedWith = fault ?? `it ended with code ${code}`;
    for (const { reject } of waiting.values()) reject(new Error(`the thread has ended: ${endedWith}`));
    waiting.clear();
    handlers.ended(endedWith);
  });

  return {
    order: (order) =>
      new Promise((resolve, reject) => {
        if (endedWith !== undefined) {
          reject(new Error(`the thread has ended: ${endedWith}`));
          return;
        }
        const id = nextId++;
        waiting.set(id, { resolve, reject });
        worker.postMessage({ kind: "order", id, order } satisfies ToThread);
      }),
    admin: (request, port) => worker.postMessage({ kind: "admin", request, port } satisfies ToThread, [port]),
    connect(thread, port) {
      // A thread that has ended takes no message: the other end must not wait for it.
      if (endedWith === undefined) worker.postMessage({ kind: "peer", thread, port } satisfies ToThread, [port]);
      else port.close();
    },
    async terminate() {
      await worker.terminate();
    },
  };
}
