/** Hostile inputs of the readers of stores, the cluster, other processes, files, and clients of the admin interface. */

import { celEndpoint } from "../../../src/admin/endpoints/config.ts";
import { mergeProfiles } from "../../../src/admin/merge/merge-profiles.ts";
import { parseRecording } from "../../../src/app/rehearsal/recording-file.ts";
import { HANDED_SOCKETS } from "../../../src/app/upgrade/messages.ts";
import { openPredecessor } from "../../../src/app/upgrade/predecessor.ts";
import { readForm } from "../../../src/base/form.ts";
import { LineSplitter } from "../../../src/base/line-splitter.ts";
import { Owner } from "../../../src/base/owner.ts";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { readYaml } from "../../../src/base/read-yaml.ts";
import { SLICED_BYTES } from "../../../src/base/sliced-work.ts";
import { lineReader } from "../../../src/cli/instance/admin-client.ts";
import { parseSnapshot, parseSnapshotInSteps } from "../../../src/config/documents/snapshot.ts";
import { parseSource } from "../../../src/config/text/yaml-source.ts";
import { alternativeNames, checkCertificates } from "../../../src/http/certificates.ts";
import { createSseParser } from "../../../src/http/sse.ts";
import { createBrowserSessions } from "../../../src/identity/login/browser-login.ts";
import { createKeyFinder } from "../../../src/identity/passwords/stored-keys.ts";
import { readJson } from "../../../src/json/read-json.ts";
import { readAck, readReport } from "../../../src/kubernetes/peer-reports.ts";
import { parseCached } from "../../../src/llm/response-cache.ts";
import { parsePriceCatalogue } from "../../../src/llm/usage/usage.ts";
import { parseClientMessage } from "../../../src/mcp/protocol/json-rpc.ts";
import { parseLockFile } from "../../../src/mcp/tools/tool-lock.ts";
import { parseCharges, parseRow, parseRows } from "../../../src/record/history/history-row.ts";
import { parseDetails } from "../../../src/record/history-record.ts";
import { createTrafficHistory } from "../../../src/record/traffic.ts";
import { readJournal } from "../../../src/store/journal.ts";
import { createMemoryStore } from "../../../src/store/memory-store.ts";
import { ownedStore } from "../../../src/store/owned-store.ts";
import { serveStoreRequest } from "../../../src/store/remote-store.ts";
import { Sealer } from "../../../src/store/sealer.ts";
import { parseCounter } from "../../../src/store/store.ts";
import { fakeClock } from "../../support/fake-clock.ts";
import { type HostileInputs, hostile, inPieces, many, mapShapes, STREAM_PIECES } from "../hostile.ts";
import { compressedShapes, formShapes, jsonShapes, lineShapes, sseShapes } from "../shapes.ts";
import { finishInTurns } from "../turns.ts";

const clock = fakeClock();

/** A store in which every key has the value. */
function storeOf(value: string) {
  return ownedStore({ ...createMemoryStore(clock), get: async () => value }, Owner.standalone);
}

const sealer = new Sealer("secret", "test");
const sealed = (value: string): string => sealer.seal("place", Buffer.from(value).toString());

const charge = (i: number): string => `["account${i}",1]`;
const row = (i: number): string => JSON.stringify(Array.from({ length: 60 }, (_, column) => (column === 0 ? i : "a")));
const document = (i: number): string =>
  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c${i}","namespace":"n"},"data":{}}`;
const snapshot = (documents: string, endpoints = ""): string =>
  `{"gateway":"g","version":"1","documents":[${documents}],"endpoints":{${endpoints}}}`;
const snapshots = {
  ...jsonShapes((value) => snapshot(document(1), `"a":${value}`)),
  "many documents": (n: number) => snapshot(many(n, document, ",")),
  "equal documents": (n: number) => snapshot(many(n, () => document(1), ",")),
  "many endpoints": (n: number) =>
    snapshot(
      "",
      many(n, (i) => `"n/s${i}:80":["10.0.0.1:80"]`, ","),
    ),
  "many addresses": (n: number) => snapshot("", `"n/s:80":[${many(n, () => '"10.0.0.1:80"', ",")}]`),
};

const route = (i: number): string => `- name: r${i}\n  matches: [{ path: { prefix: /${i} } }]\n`;
const configurations = {
  "many routes": (n: number) => `routes:\n${many(n, route)}`,
  "equal names": (n: number) => `routes:\n${many(n, () => "a: 1\n")}`,
  "many names": (n: number) => many(n, (i) => `a${i}: 1\n`),
  "one large text": (n: number) => `a: ${"x".repeat(n)}\n`,
  "one large quoted text": (n: number) => `a: "${"\\n".repeat(n / 2)}"\n`,
  "a block of text": (n: number) => `a: |\n${many(n, () => "  x\n")}`,
  "flow lists": (n: number) => `a: [${many(n, () => "1", ",")}]\n`,
  "deep flow lists": (n: number) => `a: ${"[".repeat(n / 2)}${"]".repeat(n / 2)}\n`,
  "deep objects": (n: number) => many(Math.min(n, 1_600), (i) => `${" ".repeat(i)}a:\n`),
  variables: (n: number) => many(n, (i) => `a${i}: \${HOME:-x}\n`),
  "unset variables": (n: number) => many(n, (i) => `a${i}: \${NOT_SET_${i}}\n`),
  aliases: (n: number) => `a: &a 1\nb: [${many(n, () => "*a", ",")}]\n`,
  "many documents": (n: number) => "---\na: 1\n".repeat(n / 9),
  comments: (n: number) => "# x\n".repeat(n / 4),
  "many errors": (n: number) => "a: b: c\n".repeat(n / 8),
  "invalid at the end": (n: number) => `${many(n, (i) => `a${i}: 1\n`)}\t}`,
};

/** The YAML parser takes thousands of steps for few bytes. */
const YAML_BYTES = 400;

const configuration = hostile<string>({
  shapes: configurations,
  read: (value) => finishInTurns(parseSource("a.yaml", value, {})).problems.length,
  bytes: YAML_BYTES,
});

const plainYaml = hostile<string>({
  shapes: configurations,
  read: (value) => typeof readYaml(peerInput("file/imported-configuration"), value),
  bytes: YAML_BYTES,
});

const PEM = "-----BEGIN CERTIFICATE-----\n";
const certificates = {
  "one large certificate": (n: number) => `${PEM}${"A".repeat(n)}\n-----END CERTIFICATE-----\n`,
  "many certificates": (n: number) => `${PEM}AAAA\n-----END CERTIFICATE-----\n`.repeat(n / 60),
  "never completed": (n: number) => `${PEM}${"A".repeat(n)}`,
  "many starts": (n: number) => PEM.repeat(n / PEM.length),
  "not PEM": (n: number) => "\n".repeat(n),
  "invalid characters": (n: number) => `${PEM}${"é\n".repeat(n / 3)}-----END CERTIFICATE-----\n`,
};
const alternativeNameTexts = {
  "many names": (n: number) => many(n, (i) => `DNS:a${i}.example`, ", "),
  "equal names": (n: number) => many(n, () => "DNS:a.example", ", "),
  "one large name": (n: number) => `DNS:${"a".repeat(n)}`,
  "quoted names": (n: number) => many(n, () => 'URI:"a\\"b"', ", "),
  "never completed quote": (n: number) => `URI:"${"\\\\".repeat(n / 2)}`,
  "many quotes": (n: number) => 'DNS:"'.repeat(n / 5),
  "invalid at the end": (n: number) => `${many(n, (i) => `DNS:a${i}`, ", ")}, x`,
};

const certificateNames = hostile<string>({
  shapes: alternativeNameTexts,
  read: (names) => alternativeNames(names).length,
});

/** A pprof profile: fields with a number, a wire type, and a value. */
const profileField = (id: number, content: Buffer): Buffer =>
  Buffer.concat([Buffer.from([id * 8 + 2, content.length]), content]);
const profile = (n: number, id: number, content: Buffer): string => {
  const field = profileField(id, content);
  return Buffer.concat(Array.from({ length: n / field.length }, () => field)).toString("latin1");
};
const packed = (shape: (n: number) => string): ((n: number) => Buffer) => {
  const make = compressedShapes(shape)["compressed text"];
  return (n) => make?.(n) ?? Buffer.alloc(0);
};

const lines = (read: (text: string) => unknown, shapes: Record<string, (n: number) => Buffer>) =>
  hostile<Buffer>({ shapes, read: (bytes) => read(bytes.toString()) });

const splitLines = (
  openReader: (onLine: () => void) => (piece: Buffer) => void,
  line: Parameters<typeof lineShapes>[0],
) =>
  hostile<Buffer>({
    shapes: lineShapes(line),
    read(bytes, pieceBytes) {
      let count = 0;
      const read = openReader(() => {
        count += 1;
      });
      for (const piece of inPieces(bytes, pieceBytes)) read(piece);
      return count;
    },
    pieces: STREAM_PIECES,
  });

export const recordInputs = {
  "client/certificate": certificateNames,
  "backend/certificate": certificateNames,
  "file/credentials": hostile<string>({ shapes: certificates, read: (ca) => checkCertificates({ ca }) }),
  "redis/entry": hostile<string>({
    shapes: {
      "one large number": (n) => "1".repeat(n),
      "white space": (n) => " ".repeat(n),
      "many signs": (n) => "-".repeat(n),
      "many dots": (n) => "1.".repeat(n / 2),
      "invalid at the end": (n) => `${"0".repeat(n)}x`,
    },
    read: (value) => parseCounter(value),
  }),
  "store/api-key": hostile<string>({
    shapes: jsonShapes((value) => `{"name":"a","createdAtMs":1,"metadata":{},"models":${value}}`),
    read: async (value) => (await createKeyFinder(storeOf(value), clock).find("gw-key")) !== undefined,
  }),
  "store/browser-session": hostile<string>({
    shapes: jsonShapes((value) => `{"claims":${value},"endsAtMs":9e15}`),
    read: async (value) => (await createBrowserSessions(storeOf(value), clock, "r").find("A".repeat(43))) !== undefined,
  }),
  "store/sealed-value": hostile<string>({
    shapes: { ...mapShapes(jsonShapes(), sealed), "not sealed": (n) => "A".repeat(n) },
    read: (value) => sealer.open("place", value) !== undefined,
  }),
  "store/cached-response": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"headers":${value},"body":"a","isBase64":false,"keptAtMs":1,"tokens":1,"cost":1}`),
      "many headers": (n) =>
        `{"headers":[${many(n, () => '"a","b"', ",")}],"body":"a","isBase64":false,"keptAtMs":1,"tokens":1,"cost":1}`,
    },
    read: (value) => parseCached(value) !== undefined,
  }),
  "store/traffic-history": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"total":${value},"groups":[]}`),
      "many groups": (n) => `{"total":[],"groups":[${many(n, (i) => `["node",["a${i}"],[],[]]`, ",")}]}`,
    },
    read(value) {
      const history = createTrafficHistory(clock);
      history.unpack(value);
      return history.packed().length;
    },
  }),
  "history/charges": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `[["a",${value}]]`),
      "many charges": (n) => `[${many(n, charge, ",")}]`,
    },
    read: (value) => parseCharges(value).length,
  }),
  "history/details": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"rules":[${value}]}`),
      "many rules": (n) => `{"rules":[${many(n, (i) => `{"kind":"allow","rule":"r${i}","isMet":false}`, ",")}]}`,
    },
    read: (value) => parseDetails(value).rules?.length,
  }),
  "postgres/row": hostile<string>({ shapes: jsonShapes(), read: (value) => parseRow(value)?.length }),
  "file/history-spool": lines(
    (value) => parseRows(value).length,
    lineShapes((n, i) => (n === 1 ? row(i) : `["${"x".repeat(n)}"]`)),
  ),
  "file/store-journal": hostile<Buffer>({
    shapes: lineShapes((n, i) => `00000000 ["key${i}","${"x".repeat(n)}",1]`),
    read: (bytes) => readJournal(bytes, () => undefined).damaged,
  }),
  "controller/snapshot": hostile<string>({ shapes: snapshots, read: (value) => parseSnapshot(value).documents.length }),
  "controller/snapshot-stream": hostile<Buffer>({
    shapes: sseShapes((n) => snapshot(many(n, document, ","))),
    read(bytes, pieceBytes) {
      let documents = 0;
      const parser = createSseParser(peerInput("controller/snapshot-stream"), ({ data }) => {
        const isLarge = data.length > SLICED_BYTES;
        const snapshot = isLarge ? finishInTurns(parseSnapshotInSteps(data)) : parseSnapshot(data);
        documents += snapshot.documents.length;
      });
      for (const piece of inPieces(bytes, pieceBytes)) parser.push(piece);
      return documents;
    },
    pieces: STREAM_PIECES,
  }),
  "data-plane/acknowledgment": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"version":"1","isServed":true,"problems":${value}}`),
      "many policies": (n) => `{"refused":[${many(n, () => '{"policy":"p","message":"m"}', ",")}]}`,
    },
    read: (value) => readAck(readJson(peerInput("data-plane/acknowledgment"), value)).problems.length,
  }),
  "replica/report": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"streams":${value},"acks":[]}`),
      "many acknowledgments": (n) => `{"acks":[${many(n, (i) => `{"stream":"s${i}","sequence":1,"ack":{}}`, ",")}]}`,
    },
    read: (value) => readReport(readJson(peerInput("replica/report"), value)).streams.length,
  }),
  "replica/mcp-message": hostile<string>({
    shapes: jsonShapes(
      (value) => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":${value}}}`,
    ),
    read: (value) => parseClientMessage(value).kind,
  }),
  "upgraded-process/message": hostile<readonly unknown[]>({
    shapes: {
      "one large value": (n) => ["key", "x".repeat(n)],
      "one large key": (n) => ["k".repeat(n), "x"],
      "many arguments": (n) => Array.from({ length: n }, () => "x"),
      "no arguments": () => [],
      "other types": (n) => [{ key: "x".repeat(n) }, []],
    },
    read: async (args) =>
      (await serveStoreRequest(createMemoryStore(clock), { type: "store", id: 1, operation: "set", args } as never))
        .type,
  }),
  "upgraded-process/sockets": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `[{"fd":3,"address":${value}}]`),
      "many sockets": (n) => `[${many(n, (i) => `{"fd":${i},"host":"127.0.0.1","port":${i}}`, ",")}]`,
    },
    read: (value) =>
      openPredecessor({ [HANDED_SOCKETS]: value }, {
        onMessage: () => undefined,
        onClose: () => undefined,
        send: () => undefined,
      } as never)?.sockets.length,
  }),
  "file/prices": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"providers":{"a":{"models":${value}}}}`),
      "many models": (n) =>
        `{"providers":{"a":{"models":{${many(n, (i) => `"m${i}":{"rates":{"input":"1"}}`, ",")}}}}}`,
      "many providers": (n) => `{"providers":{${many(n, (i) => `"p${i}":{"models":{}}`, ",")}}}`,
    },
    read: (value) => typeof parsePriceCatalogue(value),
  }),
  "file/tool-lock": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"version":2,"targets":{"a":{"b":{"inputSchema":${value}}}}}`),
      "many tools": (n) => `{"version":2,"targets":{"a":{${many(n, (i) => `"t${i}":{}`, ",")}}}}`,
      "many targets": (n) => `{"version":2,"targets":{${many(n, (i) => `"t${i}":{}`, ",")}}}`,
    },
    read: (value) => parseLockFile(value)?.size,
  }),
  "file/recording": lines(
    (value) => [...parseRecording(value)].length,
    lineShapes((n, i) => `{"at":${i},"x":"${"x".repeat(n)}"}`),
  ),
  "admin-client/query": hostile<string>({
    shapes: formShapes(),
    read: (value) => readForm(peerInput("admin-client/query"), value).get("limit"),
  }),
  "gateway/trace": splitLines(
    lineReader,
    (n, i) => `data: {"message":{"type":"a"},"eventEnd":${i},"x":"${"x".repeat(n)}"}`,
  ),
  "kubernetes-api/watch-lines": splitLines(
    (onLine) => {
      const splitter = new LineSplitter(peerInput("kubernetes-api/watch-lines"), onLine);
      return (piece) => splitter.push(piece);
    },
    (n, i) => `{"type":"ADDED","object":{"metadata":{"name":"c${i}","x":"${"x".repeat(n)}"}}}`,
  ),
  "file/configuration": configuration,
  "admin-client/configuration": configuration,
  "file/imported-configuration": plainYaml,
  "file/principals": plainYaml,
  "admin-client/body": hostile<string>({
    shapes: jsonShapes((value) => `{"expression":"request.path","attributes":{"request":{"path":"/","x":${value}}}}`),
    read: async (value) => {
      const endpoint = celEndpoint({ find: () => [] } as never);
      const response = await endpoint.POST?.({ body: async () => Buffer.from(value) } as never);
      return JSON.stringify(response).length;
    },
  }),
  "admin-client/profile": hostile<Buffer>({
    shapes: {
      ...compressedShapes((n) => profile(n, 6, Buffer.from("name"))),
      "many samples": packed((n) => profile(n, 2, Buffer.from([8, 1, 16, 1]))),
      "many locations": packed((n) => profile(n, 4, Buffer.from([8, 1]))),
      "many functions": packed((n) => profile(n, 5, Buffer.from([8, 1]))),
    },
    read: async (bytes) => (await mergeProfiles([bytes, bytes])).length,
  }),
} satisfies HostileInputs;
