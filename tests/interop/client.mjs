// The official TypeScript SDK as a client: `node client.mjs PLAN.json`.
//
// The plan (written by `run`) says how each server is reached: through the shim of hermesd, or, to check
// the checks themselves, directly. Prints one line a check, `ok - …` or `not ok - …`; exit code 1 when one failed.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
const sessions = new Map();
let failed = 0;

async function session(server) {
  const { command } = plan.servers[server];
  const key = JSON.stringify(command);
  if (!sessions.has(key)) {
    const capabilities = { sampling: {}, elicitation: {}, roots: { listChanged: true } };
    const client = new Client({ name: "interop-ts", version: "1.0.0" }, { capabilities });
    const content = { type: "text", text: "an answer for ts" };
    client.setRequestHandler(CreateMessageRequestSchema, async () => ({ model: "m", role: "assistant", content }));
    client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { name: "ts" } }));
    client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///tmp/of-ts", name: "r" }] }));
    const transport = new StdioClientTransport({ command: command[0], args: command.slice(1), env: plan.env, stderr: "ignore" });
    await client.connect(transport);
    sessions.set(key, client);
  }
  return sessions.get(key);
}

const exposed = (server, tool) =>
  plan.direct ? tool : `mcp_${server}_${tool.replace(/[^A-Za-z0-9_]/g, "_")}`;

async function tools(server) {
  const client = await session(server);
  const all = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : {});
    all.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor);
  return all;
}

async function call(server, tool, args, options) {
  const client = await session(server);
  return client.callTool({ name: exposed(server, tool), arguments: args }, undefined, options);
}

async function check(what, run) {
  try {
    await run();
    console.log(`ok - ts: ${what}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok - ts: ${what}: ${String(error?.message ?? error).slice(0, 500)}`);
  }
}

function equal(actual, expected, what = "value") {
  if (isDeepStrictEqual(actual, expected)) return;
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)];
  throw new Error(`${what} is ${a?.slice(0, 300)}, not ${e?.slice(0, 300)}`);
}

function truth(condition, what) {
  if (!condition) throw new Error(what);
}

// Servers may still be starting when a client connects; their tools are announced.
async function until(what, condition) {
  const end = Date.now() + 60_000;
  while (!(await condition())) {
    truth(Date.now() < end, `not within 60 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

await check("every tool of every server is listed with its own description and schema", async () => {
  for (const [server, { expected }] of Object.entries(plan.servers)) {
    const last = exposed(server, expected.at(-1).name);
    await until(`tools of ${server}`, async () => (await tools(server)).some((tool) => tool.name === last));
    const listed = new Map((await tools(server)).map((tool) => [tool.name, tool]));
    for (const tool of expected) {
      const seen = listed.get(exposed(server, tool.name));
      truth(seen, `${server}: ${tool.name} is missing`);
      equal(seen.description, tool.description, `description of ${tool.name}`);
      equal(seen.inputSchema, tool.inputSchema, `schema of ${tool.name}`);
      equal(seen.outputSchema, tool.outputSchema, `output schema of ${tool.name}`);
      equal(seen.annotations, tool.annotations, `annotations of ${tool.name}`);
    }
  }
});

await check("unicode comes back as it was sent", async () => {
  const text = "日本語 · 🦀 · עברית · e\u0301 · \u2028 · \u0001 · \\u0041 · \"quoted\"";
  equal((await call("everything", "echo", { message: text })).content[0].text, `Echo: ${text}`);
});

await check("a megabyte comes back whole", async () => {
  const text = "é".repeat(1 << 19);
  equal((await call("everything", "echo", { message: text })).content[0].text.length, text.length + 6);
});

await check("numbers are numbers", async () => {
  const { content } = await call("everything", "get-sum", { a: 0.1, b: 2 });
  truth(content[0].text.includes("2.1"), content[0].text);
});

await check("an image is the same PNG", async () => {
  const { content } = await call("everything", "get-tiny-image", {});
  const image = content.find((block) => block.type === "image");
  equal(image.mimeType, "image/png");
  equal([...Buffer.from(image.data, "base64").subarray(1, 4)], [...Buffer.from("PNG")]);
});

await check("structured content passes the SDK's own validation", async () => {
  const result = await call("everything", "get-structured-content", { location: "Chicago" });
  equal(result.structuredContent, { temperature: 36, conditions: "Light rain / drizzle", humidity: 82 });
});

await check("annotations of content survive", async () => {
  const { content } = await call("everything", "get-annotated-message", { messageType: "error", includeImage: true });
  equal(content[0].annotations.audience, ["user", "assistant"]);
  equal(content[1].type, "image");
});

await check("resource links survive", async () => {
  const { content } = await call("everything", "get-resource-links", { count: 3 });
  equal(content.filter((block) => block.type === "resource_link").length, 3);
});

await check("progress arrives in order, before the result", async () => {
  const steps = [];
  const options = { onprogress: ({ progress, total }) => steps.push([progress, total]) };
  const result = await call("everything", "trigger-long-running-operation", { duration: 0.4, steps: 4 }, options);
  // This SDK forgets the handler while a notice that came in one read with the result is still queued.
  equal(steps, [[1, 4], [2, 4], [3, 4], [4, 4]].slice(0, Math.max(steps.length, 3)));
  truth(result.content[0].text.includes("completed"), result.content[0].text);
});

await check("a cancelled call ends, and the next one works", async () => {
  const abort = new AbortController();
  const pending = call("everything", "trigger-long-running-operation", { duration: 60, steps: 60 }, {
    signal: abort.signal,
    onprogress: () => abort.abort("enough"),
  });
  await pending.then(() => truth(false, "it was not cancelled"), () => {});
  equal((await call("everything", "echo", { message: "on" })).content[0].text, "Echo: on");
});

await check("thirty calls at once each get their own answer", async () => {
  const all = Array.from({ length: 30 }, (_, n) => call("everything", "echo", { message: `n${n}` }));
  (await Promise.all(all)).forEach((result, n) => equal(result.content[0].text, `Echo: n${n}`));
});

await check("a wrong argument is an error and says which", async () => {
  const result = await call("everything", "echo", { wrong: 1 }).catch((error) => ({
    isError: true,
    content: [{ text: error.message }],
  }));
  equal(result.isError, true);
  truth(result.content[0].text.includes("message"), result.content[0].text);
});

await check("an unknown tool is an error", async () => {
  const result = await call("everything", "no-such-tool", {}).catch(() => ({ isError: true }));
  equal(result.isError, true);
});

await check("files are written and read, names and contents in unicode", async () => {
  const path = `${plan.folder}/ts-ünïcode-日本.txt`;
  const content = "first\nzweite Zeile ä\n";
  truth(!(await call("filesystem", "write_file", { path, content })).isError, "write failed");
  equal((await call("filesystem", "read_text_file", { path })).content[0].text, content);
  const list = await call("filesystem", "list_directory", { path: plan.folder });
  truth(list.content[0].text.includes("ünïcode-日本"), list.content[0].text);
});

await check("a file outside the allowed folder is refused by the server itself", async () => {
  const result = await call("filesystem", "read_text_file", { path: "/etc/passwd" });
  equal(result.isError, true);
  truth(/denied|outside/i.test(result.content[0].text), result.content[0].text);
});

await check("the memory server keeps a graph", async () => {
  const entity = { name: "ts-節点", entityType: "test", observations: ["beobachtet"] };
  await call("memory", "create_entities", { entities: [entity] });
  const found = await call("memory", "search_nodes", { query: "ts-節点" });
  equal(JSON.parse(found.content[0].text).entities, [entity]);
});

await check("sampling, elicitation and roots of a server reach its own client", async () => {
  const text = async (tool, args) => (await call("asking", tool, args)).content.map((block) => block.text).join();
  const last = exposed("asking", "trigger-sampling-request");
  await until("the tools that ask", async () => (await tools("asking")).some((tool) => tool.name === last));
  const sampled = await text("trigger-sampling-request", { prompt: "p", maxTokens: 10 });
  truth(sampled.includes("an answer for ts"), sampled);
  const elicited = await text("trigger-elicitation-request", {});
  truth(elicited.includes("User provided"), elicited);
  const roots = await text("get-roots-list", {});
  truth(roots.includes("file:///tmp/of-ts"), roots);
});

for (const client of sessions.values()) {
  await client.ping().catch(() => (failed += 1));
  await client.close();
}
process.exitCode = failed ? 1 : 0;
