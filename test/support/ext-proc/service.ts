/**
 * An external processor over gRPC on a free port. The test specifies its responses.
 */
import { resolve } from "node:path";
import {
  type GrpcObject,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServiceClientConstructor,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

export interface ReceivedMessage {
  readonly kind: "requestHeaders" | "requestBody" | "responseHeaders" | "responseBody";
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly endOfStream: boolean;
}

interface WireMessage {
  readonly headers?: { readonly headers: readonly { readonly key: string; readonly rawValue: Buffer }[] };
  readonly body?: Buffer;
  readonly endOfStream: boolean;
}

/** `never` sends nothing, `close` ends the stream without an error, and `error` fails it. */
export type ProcessorAnswer = Record<string, unknown> | { readonly last: object } | "never" | "close" | "error";

export interface ExternalProcessor {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly received: ReceivedMessage[];
  /** The number of streams that are open. */
  open(): number;
  answer: (message: ReceivedMessage) => ProcessorAnswer;
  close(): Promise<void>;
}

/** Lets the message pass without changes. */
export function pass({ kind }: ReceivedMessage): Record<string, unknown> {
  return { [kind]: { response: {} } };
}

export async function startProcessor(answer: ExternalProcessor["answer"] = pass): Promise<ExternalProcessor> {
  const definition = loadSync(resolve("test/support/ext-proc/process.proto"), { defaults: true });
  const packages = loadPackageDefinition(definition) as unknown as {
    envoy: { service: { ext_proc: { v3: GrpcObject } } };
  };
  const { service } = packages.envoy.service.ext_proc.v3.ExternalProcessor as ServiceClientConstructor;
  const server = new Server();
  let streams = 0;
  const started: ExternalProcessor = {
    host: "",
    received: [],
    open: () => streams,
    answer,
    async close() {
      server.forceShutdown();
    },
  };
  server.addService(service, {
    process(call: ServerDuplexStream<Record<string, WireMessage>, unknown>) {
      streams += 1;
      call.on("close", () => {
        streams -= 1;
      });
      call.on("error", () => undefined);
      call.on("end", () => call.end());
      call.on("data", (message: Record<string, WireMessage>) => {
        const received = readMessage(message);
        started.received.push(received);
        const said = started.answer(received);
        if (said === "never") return;
        if (said === "close") call.end();
        else if (said === "error") call.emit("error", { code: 13, details: "the processor failed" });
        else if ("last" in said) {
          call.write(said.last);
          call.end();
        } else call.write(said);
      });
    },
  });
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? fail(error) : done(bound),
    );
  });
  return Object.assign(started, { host: `127.0.0.1:${port}` });
}

function readMessage(message: Record<string, WireMessage>): ReceivedMessage {
  const [kind = "", part] =
    Object.entries(message).find(([, value]) => value !== null && typeof value === "object") ?? [];
  const headers = (part?.headers?.headers ?? []).map(({ key, rawValue }) => [key, rawValue.toString("latin1")]);
  return {
    kind: kind as ReceivedMessage["kind"],
    headers: Object.fromEntries(headers) as Record<string, string>,
    body: (part?.body ?? Buffer.alloc(0)).toString(),
    endOfStream: part?.endOfStream === true,
  };
}
