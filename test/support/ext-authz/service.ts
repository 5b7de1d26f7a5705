/**
 * An authorization service with Envoy's check API over gRPC on a free port. The test specifies its responses.
 */
import { resolve } from "node:path";
import {
  type GrpcObject,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

export interface ReceivedCheck {
  readonly attributes: {
    readonly source: { readonly address: { readonly socketAddress: { readonly address: string } } };
    readonly request: {
      readonly http: {
        readonly id: string;
        readonly method: string;
        readonly path: string;
        readonly host: string;
        readonly headers: Readonly<Record<string, string>>;
      };
    };
    readonly contextExtensions: Readonly<Record<string, string>>;
  };
}

type Http = ReceivedCheck["attributes"]["request"]["http"];

interface Entry {
  readonly key: string;
  readonly value: string;
}

/** With its headers as they are on the wire. */
interface WireCheck {
  readonly attributes: Omit<ReceivedCheck["attributes"], "request"> & {
    readonly request: { readonly http: Omit<Http, "headers"> & { readonly headers: readonly Entry[] } };
  };
}

function readCheck({ attributes }: WireCheck): ReceivedCheck {
  const { http } = attributes.request;
  const headers = Object.fromEntries(http.headers.map(({ key, value }) => [key, value]));
  return { attributes: { ...attributes, request: { ...attributes.request, http: { ...http, headers } } } };
}

export interface AuthService {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly checks: ReceivedCheck[];
  answer: (check: ReceivedCheck) => Record<string, unknown> | "never" | "error";
  close(): Promise<void>;
}

export async function startAuthService(answer: AuthService["answer"]): Promise<AuthService> {
  const definition = loadSync(resolve("test/support/ext-authz/check.proto"), { longs: Number, defaults: true });
  const packages = loadPackageDefinition(definition) as unknown as {
    envoy: { service: { auth: { v3: GrpcObject } } };
  };
  const { service } = packages.envoy.service.auth.v3.Authorization as ServiceClientConstructor;
  const server = new Server();
  const started: AuthService = {
    host: "",
    checks: [],
    answer,
    async close() {
      server.forceShutdown();
    },
  };
  server.addService(service, {
    check(call: ServerUnaryCall<WireCheck, unknown>, done: sendUnaryData<Record<string, unknown>>) {
      const received = readCheck(call.request);
      started.checks.push(received);
      const said = started.answer(received);
      if (said === "never") return;
      if (said === "error") done({ code: 13, message: "the store is away" });
      else done(null, said);
    },
  });
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? fail(error) : done(bound),
    );
  });
  return Object.assign(started, { host: `127.0.0.1:${port}` });
}
