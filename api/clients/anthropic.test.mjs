import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema';
import { faults, patience, pixel, state, until } from './support.mjs';

const client = new Anthropic(); // As it comes: the address and the key are in the environment.
const hello = { model: 'chat', max_tokens: 12, messages: [{ role: 'user', content: 'Say something.' }] };

test('lists models, and shows one', patience, async () => {
  const seen = [];
  for await (const model of client.models.list()) seen.push(model);
  assert.deepEqual(seen.map((m) => m.id).sort(), ['agent', 'chat', 'embed', 'faulty', 'rank', 'slow', 'vision']);
  for (const model of seen) {
    assert.equal(model.type, 'model');
    assert.ok(!Number.isNaN(Date.parse(model.created_at)));
  }
  assert.equal((await client.models.retrieve('chat')).id, 'chat');
  await assert.rejects(client.models.retrieve('nobody'), Anthropic.NotFoundError);
});

test('makes a message', patience, async () => {
  const { data, response, request_id } = await client.messages.create(hello).withResponse();
  assert.deepEqual([data.type, data.role, data.model, data.stop_reason, data.stop_sequence], ['message', 'assistant', 'chat', 'max_tokens', null]);
  assert.equal(data.content[0].type, 'text');
  assert.ok(data.content[0].text.length > 0);
  assert.equal(data.usage.output_tokens, 12);
  assert.ok(data.usage.input_tokens > 0);
  assert.ok(request_id, 'there is a request-id');
  assert.equal(response.headers.get('x-relay-served-model'), 'chat');
});

test('knows system, blocks, stop sequences, and how to be begun', patience, async () => {
  const whole = await client.messages.create({
    ...hello, system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }], temperature: 0.5, top_p: 0.9, top_k: 20, metadata: { user_id: 'u' },
    messages: [{ role: 'user', content: [{ type: 'text', text: 'One.' }, { type: 'text', text: 'Two.' }] }, { role: 'assistant', content: 'I' }],
  });
  const word = whole.content[0].text.trim().split(/\s+/)[1];
  assert.ok(word);
  const first = await client.messages.create(hello);
  const stop = first.content[0].text.trim().split(/\s+/)[1];
  const stopped = await client.messages.create({ ...hello, stop_sequences: [stop] });
  assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', stop]);
});

test('streams', patience, async () => {
  const whole = await client.messages.create(hello);
  const types = [];
  let text = '';
  for await (const event of await client.messages.create({ ...hello, stream: true })) {
    if (types.at(-1) !== event.type) types.push(event.type);
    if (event.type === 'content_block_delta') text += event.delta.text;
    if (event.type === 'message_start') assert.ok(event.message.usage.input_tokens >= 0);
    if (event.type === 'message_delta') assert.equal(event.usage.output_tokens, 12);
  }
  assert.deepEqual(types.filter((t) => t !== 'ping'), ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop']);
  assert.equal(text, whole.content[0].text);

  const stream = client.messages.stream(hello);
  const pieces = [];
  stream.on('text', (piece) => pieces.push(piece));
  const final = await stream.finalMessage();
  assert.equal(pieces.join(''), whole.content[0].text);
  assert.deepEqual(final.content, whole.content);
  assert.deepEqual([final.stop_reason, final.usage.input_tokens, final.usage.output_tokens], ['max_tokens', whole.usage.input_tokens, 12]);
});

test('leaves in the middle, and the engine is free', patience, async () => {
  const stream = client.messages.stream({ ...hello, model: 'slow', max_tokens: 2000 });
  let seen = 0;
  stream.on('text', () => { if (++seen === 3) stream.abort(); });
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  await until('the only slot is free', async () => (await state('slow')).active === 0, 2000);
});

const tools = [{
  name: 'weather', description: 'The weather of a place',
  input_schema: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'], additionalProperties: false },
}];

test('uses tools, several at a time', patience, async () => {
  const ask = { ...hello, max_tokens: 64, tools, messages: [{ role: 'user', content: 'What is the weather in Rome and Oslo?' }] };
  for (const message of [await client.messages.create(ask), await client.messages.stream(ask).finalMessage()]) {
    assert.equal(message.stop_reason, 'tool_use');
    const uses = message.content.filter((block) => block.type === 'tool_use');
    assert.deepEqual(uses.map((u) => [u.name, u.input.place]), [['weather', 'Rome'], ['weather', 'Oslo']]);
    assert.notEqual(uses[0].id, uses[1].id);
    const next = await client.messages.create({
      ...ask,
      messages: [...ask.messages, { role: 'assistant', content: message.content }, {
        role: 'user', content: [
          { type: 'tool_result', tool_use_id: uses[0].id, content: 'sunny' },
          { type: 'tool_result', tool_use_id: uses[1].id, content: [{ type: 'text', text: 'no such place' }], is_error: true },
        ],
      }],
    });
    assert.equal(next.content[0].text, 'It is sunny in both.');
  }
});

test('heeds tool_choice', patience, async () => {
  const forced = await client.messages.create({ ...hello, max_tokens: 64, tools, tool_choice: { type: 'tool', name: 'weather' } });
  assert.equal(forced.content.at(-1).name, 'weather');
  const any = await client.messages.create({ ...hello, max_tokens: 64, tools, tool_choice: { type: 'any', disable_parallel_tool_use: true } });
  assert.equal(any.content.filter((b) => b.type === 'tool_use').length, 1);
  const none = await client.messages.create({ ...hello, tools, tool_choice: { type: 'none' } });
  assert.ok(none.content.every((b) => b.type === 'text'));
});

test('answers by a JSON schema', patience, async () => {
  const schema = { type: 'object', properties: { city: { type: 'string' }, people: { type: 'integer' } }, required: ['city', 'people'], additionalProperties: false };
  const message = await client.messages.parse({ ...hello, max_tokens: 200, output_config: { format: jsonSchemaOutputFormat(schema) } });
  assert.ok(Number.isInteger(message.parsed_output.people));
});

test('counts tokens', patience, async () => {
  const { max_tokens: _, ...ask } = hello;
  const counted = await client.messages.countTokens({ ...ask, system: 'Be brief.', tools });
  const used = await client.messages.create({ ...hello, system: 'Be brief.', tools });
  assert.equal(counted.input_tokens, used.usage.input_tokens + used.usage.cache_read_input_tokens);
});

test('reads images that it is given, and fetches none', patience, async () => {
  const ask = (model, source) => client.messages.create({ ...hello, model, messages: [{ role: 'user', content: [{ type: 'image', source }, { type: 'text', text: 'What is this?' }] }] });
  const seen = await ask('vision', { type: 'base64', media_type: 'image/png', data: pixel });
  assert.equal(seen.usage.output_tokens, 12);
  await assert.rejects(ask('vision', { type: 'url', url: 'http://127.0.0.1:9/x.png' }), Anthropic.BadRequestError);
  await assert.rejects(ask('chat', { type: 'base64', media_type: 'image/png', data: pixel }), Anthropic.BadRequestError);
});

test('is refused in its own words', patience, async () => {
  const refused = (promise, kind, type, text) => assert.rejects(promise, (e) => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    assert.equal(e.error.type, 'error');
    assert.equal(e.error.error.type, type);
    if (text) assert.match(e.error.error.message, text);
    return true;
  });
  const by = (apiKey) => new Anthropic({ apiKey, maxRetries: 0 });
  await refused(by('rk-made-up').messages.create(hello), Anthropic.AuthenticationError, 'authentication_error');
  await refused(client.messages.create({ ...hello, model: 'nobody' }), Anthropic.NotFoundError, 'not_found_error', /nobody/);
  await refused(client.messages.create({ ...hello, no_such_field: 1 }), Anthropic.BadRequestError, 'invalid_request_error', /no_such_field/);
  await refused(client.messages.create({ ...hello, messages: [{ role: 'user', content: 'word '.repeat(6000) }] }), Anthropic.BadRequestError, 'invalid_request_error', /prompt is too long: \d+ tokens > 4096 maximum/);
  await refused(by(process.env.RELAY_TEST_EMBED_KEY).messages.create(hello), Anthropic.PermissionDeniedError, 'permission_error');
});

test('tries again where that helps', patience, async () => {
  const impatient = new Anthropic({ defaultHeaders: { prefer: 'wait=0' } });
  await client.messages.create({ ...hello, model: 'faulty' });
  await faults('faulty', 'refuse*1');
  assert.equal((await impatient.messages.create({ ...hello, model: 'faulty' })).usage.output_tokens, 12);

  // A stream outlives its engine, but for what is in that engine only.
  const cut = async (more) => {
    await faults('faulty', 'die:3*1');
    return client.messages.stream({ ...hello, model: 'faulty', ...more }).finalMessage();
  };
  assert.equal((await cut({})).usage.output_tokens, 12);
  await assert.rejects(cut({ output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } }), Anthropic.APIError);
});

test('comes again when it is told to', patience, async () => {
  let told;
  const refused = new Promise((done) => { told = done; });
  const single = new Anthropic({
    apiKey: process.env.RELAY_TEST_SINGLE_KEY,
    fetch: async (...ask) => {
      const answer = await fetch(...ask);
      if (answer.status === 429) told(answer.headers.get('retry-after'));
      return answer;
    },
  });
  const long = await single.messages.create({ ...hello, model: 'slow', max_tokens: 2000, stream: true });
  const waiting = single.messages.create(hello);
  assert.ok(Number(await refused) > 0);
  await assert.rejects(single.messages.create(hello, { maxRetries: 0 }), (e) => e instanceof Anthropic.RateLimitError && e.error.error.type === 'rate_limit_error');
  long.controller.abort();
  assert.equal((await waiting).usage.output_tokens, 12);
});
