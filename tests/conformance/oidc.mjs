// A real authorization server (oidc-provider) and an MCP server that believes only its tokens.
// Prints its address; `POST /void` makes every access token void, `GET /counts` tells what was asked.

import { createServer } from "node:http";
import Provider from "oidc-provider";

const counts = { refresh: 0, revoked: 0, registered: 0 };
let voided = new Set();
let seen = new Set();

const server = createServer((request, response) => answer(request, response).catch((error) => fail(response, error)));
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const base = `http://127.0.0.1:${server.address().port}`;
const resource = `${base}/mcp`;

const provider = new Provider(base, {
  cookies: { keys: ["for-the-test"] },
  scopes: ["openid", "offline_access", "tools:use"],
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, indicator) => {
        if (indicator !== resource) throw new Error(`another resource: ${indicator}`);
        return { scope: "tools:use", audience: resource, accessTokenTTL: 3600, accessTokenFormat: "opaque" };
      },
    },
  },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_ctx, client) => client.grantTypeAllowed("refresh_token"),
  findAccount: async (_ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
});
provider.on("grant.success", (ctx) => {
  if (ctx.oidc.params.grant_type === "refresh_token") counts.refresh += 1;
});
provider.on("registration_create.success", () => (counts.registered += 1));
provider.on("grant.revoked", () => (counts.revoked += 1));
const handle = provider.callback();

async function agree(request, response) {
  const { prompt, params, grantId, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: "tester" } });
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(prompt.details.missingOIDCScope?.join(" ") ?? "openid");
  for (const [indicator, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(" "));
  }
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

async function mcp(request, response) {
  const value = request.headers.authorization?.replace(/^Bearer /, "");
  const token = value && !voided.has(value) ? await provider.AccessToken.find(value) : undefined;
  if (!token || ![token.aud].flat().includes(resource)) {
    const where = `${base}/.well-known/oauth-protected-resource/mcp`;
    response.setHeader("www-authenticate", `Bearer resource_metadata="${where}", scope="tools:use"`);
    return json(response, 401, {});
  }
  seen.add(value);
  if (request.method !== "POST") return json(response, 405, {});
  const message = JSON.parse(await text(request));
  if (message.id === undefined) return json(response, 202, "");
  const results = {
    initialize: () => ({
      protocolVersion: message.params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "behind-oidc", version: "1" },
    }),
    "tools/list": () => ({ tools: [{ name: "whoami", inputSchema: { type: "object" } }] }),
    "tools/call": () => ({ content: [{ type: "text", text: token.accountId }] }),
  };
  const result = results[message.method]?.();
  const failed = { code: -32601, message: "method not found" };
  json(response, 200, { jsonrpc: "2.0", id: message.id, ...(result ? { result } : { error: failed }) });
}

async function answer(request, response) {
  const path = request.url.split("?")[0];
  if (path === "/mcp") return mcp(request, response);
  if (path === "/counts") return json(response, 200, counts);
  if (path === "/void") {
    voided = new Set([...voided, ...seen]);
    return json(response, 200, {});
  }
  if (path.startsWith("/interaction/")) return agree(request, response);
  if (path === "/.well-known/oauth-protected-resource/mcp") {
    return json(response, 200, { resource, authorization_servers: [base], scopes_supported: ["tools:use"] });
  }
  return handle(request, response);
}

async function text(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
}

function json(response, status, body) {
  response.statusCode = status;
  response.setHeader("content-type", "application/json");
  response.end(body === "" ? "" : JSON.stringify(body));
}

function fail(response, error) {
  console.error(error);
  json(response, 500, { error: String(error) });
}

console.log(base);
