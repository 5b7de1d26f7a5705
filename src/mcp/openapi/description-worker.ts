/**
 * Runs in a worker thread and converts one description, because parsing YAML and large JSON would block the event loop.
 * It sends the operations in batches, each after the main thread has taken the one before.
 */
import { parentPort, workerData } from "node:worker_threads";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish } from "../../base/sliced-work.ts";
import { type OpenApiDocument, parseOpenApi } from "./document.ts";
import { convertOperations, type Operation, type Operations, type Selection } from "./operations.ts";

export interface DescriptionTask {
  readonly text: string;
  readonly selection: Selection;
}

export type DescriptionMessage =
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "operations"; readonly operations: readonly Operation[] }
  | {
      readonly kind: "done";
      readonly about: Pick<OpenApiDocument, "title" | "version" | "description">;
      readonly left: Operations["left"];
    };

const YAML = peerInput("openapi-server/yaml-description");
const BATCH_CHARS = 256 * 1024;

function* messages({ text, selection }: DescriptionTask): Generator<DescriptionMessage> {
  try {
    const document = parseOpenApi(text, YAML);
    const { byName, left } = finish(convertOperations(document, selection));
    let operations: Operation[] = [];
    let chars = 0;
    for (const operation of byName.values()) {
      operations.push(operation);
      chars += operation.text.length;
      if (chars < BATCH_CHARS) continue;
      yield { kind: "operations", operations };
      operations = [];
      chars = 0;
    }
    yield { kind: "operations", operations };
    const { title, version, description } = document;
    yield { kind: "done", about: { title, version, description: description?.slice(0, BATCH_CHARS) }, left };
  } catch (error) {
    yield { kind: "failed", reason: error instanceof Error ? error.message : String(error) };
  }
}

const sent = messages(workerData as DescriptionTask);

function send(): void {
  const { value, done } = sent.next();
  if (done !== true) parentPort?.postMessage(value);
}

parentPort?.on("message", send);
send();
