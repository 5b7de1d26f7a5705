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
  /** Numbers of Envoy's protocol, in the first message of a stream. */
  readonly modes?: { readonly requestBodyMode: number; readonly responseBodyMode: number };
  /** The endpoint that served the request, in `metadata_context`. */
  readonly served?: string;
}

interface WireMessage {
  readonly headers?: { readonly headers: readonly { readonly key: string; readonly rawValue: Buffer }[] };
  readonly body?: Buffer;
  readonly endOfStream: boolean;
}

/** `never` sends nothing, `close` ends the stream without an error, and `error` fails it. A list is sent in order. */
export type ProcessorAnswer =
  | Record<string, unknown>
  | readonly Record<string, unknown>[]
  | { readonly last: object }
  | "never"
  | "close"
  | "error";

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

export async function startProcessor(
  answer: ExternalProcessor["answer"] = pass,
  credentials = ServerCredentials.createInsecure(),
): Promise<ExternalProcessor> {
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
    process(call: ServerDuplexStream<WireRequest, unknown>) {
      streams += 1;
      call.on("close", () => {
        streams -= 1;
      });
      call.on("error", () => undefined);
      call.on("end", () => call.end());
      call.on("data", (message: WireRequest) => {
        const received = readMessage(message);
        started.received.push(received);
        const said = started.answer(received);
        if (said === "never") return;
        if (said === "close") call.end();
        else if (said === "error") call.emit("error", { code: 13, details: "the processor failed" });
        else if (Array.isArray(said)) for (const one of said) call.write(one);
        else if ("last" in said) {
          call.write(said.last);
          call.end();
        } else call.write(said);
      });
    },
  });
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", credentials, (error, bound) => (error ? fail(error) : done(bound)));
  });
  return Object.assign(started, { host: `127.0.0.1:${port}` });
}

type Kind = ReceivedMessage["kind"];

interface WireRequest extends Readonly<Partial<Record<Kind, WireMessage | null>>> {
  readonly protocolConfig?: ReceivedMessage["modes"] | null;
  readonly metadataContext?: {
    readonly filterMetadata: Readonly<Record<string, { readonly fields: Readonly<Record<string, WireValue>> }>>;
  } | null;
}

interface WireValue {
  readonly stringValue?: string;
}

const KINDS = ["requestHeaders", "requestBody", "responseHeaders", "responseBody"] as const;

function readMessage(message: WireRequest): ReceivedMessage {
  const kind = KINDS.find((name) => message[name]) as Kind;
  const part = message[kind];
  const headers = (part?.headers?.headers ?? []).map(({ key, rawValue }) => [key, rawValue.toString("latin1")]);
  const { protocolConfig, metadataContext } = message;
  const served =
    metadataContext?.filterMetadata["envoy.lb"]?.fields["x-gateway-destination-endpoint-served"]?.stringValue;
  return {
    kind,
    headers: Object.fromEntries(headers) as Record<string, string>,
    body: (part?.body ?? Buffer.alloc(0)).toString(),
    endOfStream: part?.endOfStream === true,
    ...(protocolConfig ? { modes: protocolConfig } : {}),
    ...(served === undefined ? {} : { served }),
  };
}
